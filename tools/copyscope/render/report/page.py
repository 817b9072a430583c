"""How the page looks: one small style sheet, light and dark, from a telephone to a wide screen."""

STYLE = """
:root { --ink: #1b1f24; --faint: #57606a; --paper: #fff; --line: #d0d7de; --panel: #f6f8fa;
  --link: #0057a8; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e8eb; --faint: #a0a8b2; --paper: #14171b; --line: #353b43; --panel: #1d2127;
    --link: #79b8ff; }
}
* { box-sizing: border-box; }
html { -webkit-text-size-adjust: 100%; }
body { margin: 0 auto; max-width: 74rem; padding: 1rem clamp(.75rem, 3vw, 2rem) 4rem; color: var(--ink);
  background: var(--paper); font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: clamp(1.3rem, 4vw, 1.9rem); line-height: 1.2; margin: .5rem 0; }
h2 { font-size: 1.35rem; margin: 2.5rem 0 .5rem; padding-top: .5rem; border-top: 1px solid var(--line); }
h3 { font-size: 1.08rem; margin: 1.75rem 0 .25rem; }
p, li { max-width: 60rem; }
p { margin: .5rem 0; }
.strong { font-weight: 600; }
.note { color: var(--faint); font-size: .875rem; }
a { color: var(--link); }
nav { display: flex; flex-wrap: wrap; gap: .25rem 1rem; font-size: .9rem; }
figure { margin: 1.25rem 0 2rem; }
figcaption { color: var(--faint); font-size: .875rem; max-width: 60rem; margin-top: .25rem; }
figure .wide { background: #fff; border: 1px solid var(--line); border-radius: 6px; }
img { display: block; width: 100%; min-width: 40rem; height: auto; }
.wide { overflow-x: auto; max-width: 100%; }
table { border-collapse: collapse; font-size: .875rem; margin: .5rem 0; overflow-wrap: normal; }
caption { text-align: left; font-weight: 600; padding: .25rem 0; }
th, td { padding: .3rem .6rem; border-bottom: 1px solid var(--line); text-align: left; vertical-align: top; }
th { background: var(--panel); vertical-align: bottom; }
td { min-width: 4.5rem; max-width: 34rem; }
td:first-child { min-width: 7rem; }
.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
th.n { white-space: normal; min-width: 6.5rem; overflow-wrap: normal; }
pre { background: var(--panel); padding: .75rem; margin: .5rem 0; font-size: .85rem; border-radius: 6px; }
details { margin: .5rem 0; }
summary { cursor: pointer; font-weight: 600; padding: .25rem 0; }
@media print { details > * { display: block; } img { min-width: 0; } }
"""
