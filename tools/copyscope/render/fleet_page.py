"""The fleet as one HTML page that needs nothing else: who differs, by kernel, by NIC, and every host.

What hosts say of themselves is text and nothing else: it is escaped, it stands in no script, and the page may
run one script only, by its hash. Without a script it is the same page, unsorted.
"""

import base64
import hashlib
from collections import defaultdict
from collections.abc import Callable, Sequence

from copyscope import units
from copyscope.escaping import for_html
from copyscope.fleet import outliers
from copyscope.fleet.answers import Row
from copyscope.render.report.page import STYLE

SENTENCES_MAX = 12
COLUMNS = ("host", "kernel", "NIC", "state", "valid", "zero-copy sends copied", "seconds", "why")
NUMBERS = {5, 6}
OWN_STYLE = """
body { max-width: 90rem; padding-bottom: 1rem; }
.top { display: grid; grid-template-columns: minmax(0, 3fr) minmax(0, 1fr) minmax(0, 1fr); gap: 0 2rem; }
h2 { font-size: 1rem; margin: .75rem 0 .25rem; padding: 0; border: 0; }
ul { margin: 0; padding-left: 1.1rem; font-size: .875rem; max-height: 11rem; overflow-y: auto; }
.counts { display: flex; flex-wrap: wrap; gap: .25rem 1rem; margin: 0; font-size: .95rem; }
.counts b { font-variant-numeric: tabular-nums; }
input { font: inherit; padding: .25rem .5rem; border: 1px solid var(--faint); border-radius: 4px;
  width: 18rem; max-width: 100%; color: inherit; background: var(--paper); }
.hosts { max-height: max(20rem, calc(100vh - 25rem)); overflow: auto; border: 1px solid var(--line); }
.hosts table { margin: 0; width: 100%; }
.hosts th { position: sticky; top: 0; }
td, td:first-child { min-width: 0; }
td { max-width: 28rem; overflow-wrap: anywhere; }
td:nth-child(4) { white-space: nowrap; }
th button { all: unset; cursor: pointer; font-weight: 600; }
th button:focus-visible, button.pick:focus-visible { outline: 2px solid var(--link); }
th[aria-sort=ascending] button::after { content: " \\2191"; }
th[aria-sort=descending] button::after { content: " \\2193"; }
button.pick { all: unset; cursor: pointer; color: var(--link); }
tr.bad td:nth-child(4) { font-weight: 600; color: #b42318; }
@media (prefers-color-scheme: dark) { tr.bad td:nth-child(4) { color: #ff8a80; } }
@media (max-width: 44rem) {
  .top { display: block; }
  .hosts { max-height: none; border: 0; }
  .hosts thead tr { display: flex; flex-wrap: wrap; gap: .25rem; margin-bottom: .5rem; }
  .hosts th { position: static; border: 1px solid var(--line); border-radius: 4px; min-width: 0; }
  .hosts tbody tr { display: grid; grid-template-columns: 1fr 1fr; padding: .4rem 0;
    border-bottom: 1px solid var(--line); }
  .hosts tbody tr[hidden] { display: none; }
  .hosts td { border: 0; padding: .1rem .3rem; text-align: left; white-space: normal; }
  .hosts td:first-child { font-weight: 600; }
  .hosts td:last-child { grid-column: 1 / -1; }
  .hosts td:not(:first-child)::before { content: attr(data-of) " "; color: var(--faint); font-weight: 400; }
  .hosts td:empty { display: none; }
}
"""
# Sorts by a click on a column's title, hides the rows that do not hold what is typed.
SCRIPT = """
const body = document.querySelector('.hosts tbody'), find = document.querySelector('input');
const heads = [...document.querySelectorAll('.hosts th')];
heads.forEach((head, at) => head.firstChild.addEventListener('click', () => {
  const down = head.getAttribute('aria-sort') === 'ascending';
  heads.forEach(one => one.removeAttribute('aria-sort'));
  head.setAttribute('aria-sort', down ? 'descending' : 'ascending');
  const key = row => row.cells[at].textContent;
  const order = (a, b) => (key(a) === '') - (key(b) === '') ||
    (down ? -1 : 1) * key(a).localeCompare(key(b), 'en', {numeric: true});
  body.append(...[...body.rows].sort(order));
}));
const show = () => {
  const text = find.value.toLowerCase();
  for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(text);
};
find.addEventListener('input', show);
for (const pick of document.querySelectorAll('button.pick'))
  pick.addEventListener('click', () => { find.value = pick.textContent; show(); find.focus(); });
"""


def fleet_page(rows: Sequence[Row], command: str, began: str) -> str:
    """The page: `command` is what was asked, `began` the time in UTC."""
    digest = base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode()
    policy = f"default-src 'none'; img-src data:; style-src 'unsafe-inline'; script-src 'sha256-{digest}'"
    title = f"{command} on {len(rows)} hosts"
    states: dict[str, int] = defaultdict(int)
    for row in rows:
        states[row.state] += 1
    counts = "".join(f"<span><b>{count}</b> {for_html(state)}</span>" for state, count in states.items())
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<link rel="icon" href="data:,">
<title>{for_html(title)}</title>
<style>{STYLE}{OWN_STYLE}</style>
</head>
<body>
<h1>{for_html(title)}</h1>
<p class="counts">{counts}<span class="note">begun {for_html(began[:16].replace("T", " "))} UTC</span></p>
<div class="top">
<section><h2>To look at</h2>{_sentences(rows)}</section>
<section><h2>By kernel</h2>{_groups(rows, _kernel)}</section>
<section><h2>By NIC</h2>{_groups(rows, _nics)}</section>
</div>
<h2><label for="find">Hosts with</label> <input id="find" type="search" placeholder="any text"></h2>
<div class="hosts" tabindex="0"><table>
<thead><tr>{"".join(map(_head, range(len(COLUMNS))))}</tr></thead>
<tbody>
{chr(10).join(map(_row, rows))}
</tbody></table></div>
<script>{SCRIPT}</script>
</body>
</html>
"""


def _kernel(row: Row) -> str:
    return "" if row.facts is None else row.facts.kernel


def _nics(row: Row) -> str:
    return "" if row.facts is None else " ".join(row.facts.nics) or "none"


def _sentences(rows: Sequence[Row]) -> str:
    found = outliers.find(rows)
    more = [f"and {len(found) - SENTENCES_MAX} differences more"] if len(found) > SENTENCES_MAX else []
    items = "".join(f"<li>{for_html(text)}</li>" for text in [*found[:SENTENCES_MAX], *more])
    return f"<ul>{items}</ul>" if items else "<p>All hosts are alike.</p>"


def _groups(rows: Sequence[Row], of: Callable[[Row], str]) -> str:
    """How many hosts have it, how many of them are ok, and of how many zero-copy sends were copied."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        found[of(row)].append(row)
    items = []
    for name, alike in sorted(found.items(), key=lambda pair: -len(pair[1])):
        good = sum(row.state == "ok" for row in alike)
        told = [row.copied for row in alike if row.copied is not None]
        copied = f", {sum(share > 0 for share in told)} of {len(told)} copied" if told else ""
        shown = f'<button class="pick">{for_html(name)}</button>' if name else "not known"
        items.append(f"<li>{shown}: {len(alike)}, {good} ok{copied}</li>")
    return f"<ul>{''.join(items)}</ul>"


def _head(at: int) -> str:
    return f"<th{_number(at)}><button>{COLUMNS[at]}</button></th>"


def _number(at: int) -> str:
    return ' class="n"' if at in NUMBERS else ""


def _row(row: Row) -> str:
    valid = "" if row.valid is None else "yes" if row.valid else "no"
    copied = "" if row.copied is None else units.format_percent(row.copied) or ""
    took = "" if row.seconds is None else f"{row.seconds:.1f}"
    cells = (row.host, _kernel(row), _nics(row), row.state, valid, copied, took, row.cause or "")
    made = "".join(
        f'<td{_number(at)} data-of="{COLUMNS[at]}">{for_html(cell)}</td>' for at, cell in enumerate(cells)
    )
    return f"<tr{'' if row.state == 'ok' else ' class=bad'}>{made}</tr>"
