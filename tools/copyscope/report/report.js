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
    const values = [...new Set(settings.map(setting => setting[at]))];
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
  const match = /^([-+]?[\d,]*\.?\d+)(?:\s*(KiB|MiB|GiB))?/.exec(text);
  return match ? [0, match[1].replaceAll(',', '') * (UNITS[match[2]] || 1), text] : [1, 0, text];
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
      // Cells without a number come last in both directions.
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
  for (let parent = at; parent; parent = parent.parentElement) {
    if (parent.tagName === 'DETAILS') parent.open = true;
  }
  if (at) at.scrollIntoView({block: 'start'});
}
addEventListener('hashchange', reveal);
if (location.hash) reveal();
