"""How the page looks and what moves on it: light and dark, from a telephone to a wide screen.

The script adds what a reader can do without, and nothing is hidden from who has none: menus in place of the
folded views of a choice, and tables that sort by a click on a title and show the rows that hold a word.
"""

STYLE = """
:root { --ink: #1b1f24; --faint: #57606a; --paper: #fff; --line: #d0d7de; --panel: #f6f8fa;
  --link: #0057a8; --good: #d8f0df; --bad: #fddcd3; --open: #fdf0c4; --nav: 3rem; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8eb; --faint: #a0a8b2; --paper: #14171b; --line: #353b43; --panel: #1d2127;
    --link: #79b8ff; --good: #14402a; --bad: #55231a; --open: #463a10; }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; scroll-padding-top: var(--nav); }
body { margin: 0 auto; max-width: 74rem; padding: 1rem clamp(.75rem, 3vw, 2rem) 4rem; color: var(--ink);
  background: var(--paper); font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: clamp(1.3rem, 4vw, 1.9rem); line-height: 1.2; margin: .5rem 0; }
h2 { font-size: 1.35rem; margin: 2.5rem 0 .5rem; padding-top: .5rem; border-top: 1px solid var(--line); }
main > h2:first-child { border: 0; margin-top: .5rem; }
h3 { font-size: 1.08rem; margin: 1.75rem 0 .25rem; }
p, li { max-width: 60rem; }
p { margin: .5rem 0; }
.strong { font-weight: 600; }
.note { color: var(--faint); font-size: .875rem; }
a { color: var(--link); }
nav { position: sticky; top: 0; z-index: 2; display: flex; gap: .9rem; overflow-x: auto; font-size: .85rem;
  white-space: nowrap; padding: .6rem 0; background: var(--paper); border-bottom: 1px solid var(--line); }
@media (min-width: 700px) { nav { flex-wrap: wrap; row-gap: 0; } html { --nav: 4.5rem; } }
figure { margin: 1.25rem 0 2rem; }
figcaption { color: var(--faint); font-size: .875rem; max-width: 60rem; margin-top: .25rem; }
figure .paper { background: #fff; border: 1px solid var(--line); border-radius: 6px; }
img, svg { display: block; max-width: 100%; height: auto; }
img { width: 100%; }
.wide { overflow-x: auto; max-width: 100%; }
table { border-collapse: collapse; font-size: .875rem; margin: .5rem 0; overflow-wrap: normal; }
caption { text-align: left; font-weight: 600; padding: .25rem 0; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
th { background: var(--panel); vertical-align: bottom; }
td { min-width: 4.5rem; max-width: 34rem; }
td:first-child { min-width: 7rem; }
td a { color: inherit; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
th.n { white-space: normal; min-width: 6.5rem; overflow-wrap: normal; }
th button { all: unset; cursor: pointer; }
th button:focus-visible { outline: 2px solid var(--link); }
th button::after { content: " \\2195"; color: var(--faint); }
th[aria-sort=ascending] button::after { content: " \\2191"; }
th[aria-sort=descending] button::after { content: " \\2193"; }
.good { background: var(--good); } .bad { background: var(--bad); } .open { background: var(--open); }
tr:target td { outline: 2px solid var(--link); outline-offset: -2px; }
label { display: inline-block; margin: .25rem 1rem .25rem 0; font-size: .9rem; }
select, input { font: inherit; color: inherit; background: var(--paper); border: 1px solid var(--faint);
  border-radius: 4px; padding: .15rem .4rem; max-width: 100%; }
.keys { list-style: none; display: flex; flex-wrap: wrap; gap: .1rem 1rem; padding: 0; margin: .4rem 0;
  font-size: .875rem; }
.keys li { display: flex; align-items: center; gap: .4rem; }
.keys i { width: .9rem; height: .9rem; border: 1px solid var(--faint); }
.bars { list-style: none; padding: 0; margin: .5rem 0; }
.bars li { max-width: none; display: grid; grid-template-columns: minmax(6rem, 11rem) 1fr minmax(6rem, 17rem);
  gap: 0 .75rem; align-items: center; padding: .2rem 0; border-bottom: 1px solid var(--line);
  font-size: .9rem; }
.bars b { font-weight: 600; }
.track { position: relative; height: 1.5rem; }
.track i { position: absolute; top: 0; bottom: 0; border: solid var(--faint); border-width: 1px 0; }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr));
  gap: 0 1.5rem; }
.charts figure { margin: .5rem 0 1rem; }
.curves text { font: 12px system-ui, sans-serif; fill: var(--ink); }
.grid { stroke: var(--line); } .one { stroke: var(--ink); stroke-width: 1.2; }
.curves .mark, .keys .mark { stroke-width: 1.5; }
.chosen > summary { display: none; }
pre { background: var(--panel); padding: .75rem; margin: .5rem 0; font-size: .85rem; border-radius: 6px; }
details { margin: .5rem 0; }
summary { cursor: pointer; font-weight: 600; padding: .25rem 0; }
footer { margin-top: 3rem; border-top: 1px solid var(--line); }
@media (max-width: 40rem) {
  th, td { padding-left: .3rem; padding-right: .3rem; }
  .bars li { grid-template-columns: 1fr; padding: .4rem 0; }
  .track { height: 1.25rem; }
}
@media print { details > * { display: block; } nav { display: none; } }
"""

SCRIPT = r"""
'use strict';
const all = (q, of = document) => [...of.querySelectorAll(q)];
const make = (tag, text = '') => Object.assign(document.createElement(tag), {textContent: text});

for (const box of all('.choice')) {
  const names = JSON.parse(box.dataset.names), views = all(':scope > .view', box);
  const settings = views.map(view => JSON.parse(view.dataset.setting));
  const first = settings[views.findIndex(view => view.open)];
  const none = make('p', 'Not measured in this setting.');
  const menus = names.map((name, at) => {
    const label = make('label', name + ' '), menu = make('select');
    const values = [...new Set(settings.map(one => one[at]))];
    menu.append(...values.map(value => new Option(value, value, value === first[at], value === first[at])));
    menu.addEventListener('change', show);
    label.append(menu);
    label.hidden = values.length < 2;
    return [label, menu];
  });
  function show() {
    const wanted = JSON.stringify(menus.map(([, menu]) => menu.value));
    none.hidden = false;
    views.forEach((view, at) => {
      view.open = JSON.stringify(settings[at]) === wanted;
      view.hidden = !view.open;
      view.classList.add('chosen');
      if (view.open) none.hidden = true;
    });
  }
  box.prepend(...menus.map(([label]) => label), none);
  show();
}

const UNITS = {KiB: 1024, MiB: 1048576, GiB: 1073741824};
function key(row, at) {
  const text = row.cells[at].textContent.trim();
  const found = /^([-+]?[\d,]*\.?\d+)(?:\s*(KiB|MiB|GiB))?/.exec(text);
  return found ? [0, found[1].replaceAll(',', '') * (UNITS[found[2]] || 1), text] : [1, 0, text];
}
for (const table of all('table')) {
  const body = table.tBodies[0], rows = [...body.rows];
  if (rows.length < 2) continue;
  all('thead th', table).forEach((head, at) => {
    const button = make('button', head.textContent);
    button.type = 'button';
    head.replaceChildren(button);
    button.addEventListener('click', () => {
      const down = head.getAttribute('aria-sort') === 'ascending' ? -1 : 1;
      all('th', table).forEach(other => other.removeAttribute('aria-sort'));
      head.setAttribute('aria-sort', down > 0 ? 'ascending' : 'descending');
      const keyed = rows.map(row => [key(row, at), row]);
      // what is no number stands last, whichever way
      keyed.sort(([a], [b]) => a[0] - b[0] || down * (a[1] - b[1] || a[2].localeCompare(b[2])));
      body.append(...keyed.map(([, row]) => row));
    });
  });
  if (rows.length < 15) continue;
  const label = make('label', 'rows with '), input = make('input');
  input.type = 'search';
  label.append(input);
  table.parentElement.before(label);
  input.addEventListener('input', () => {
    const words = input.value.toLowerCase().split(/\s+/);
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every(word => text.includes(word));
    }
  });
}

function reveal() {
  const at = document.getElementById(decodeURIComponent(location.hash.slice(1)));
  for (let one = at; one; one = one.parentElement) if (one.tagName === 'DETAILS') one.open = true;
  if (at) at.scrollIntoView({block: 'start'});
}
addEventListener('hashchange', reveal);
if (location.hash) reveal();
"""
