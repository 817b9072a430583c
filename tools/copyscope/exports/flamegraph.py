"""A flame graph as one SVG: frames as wide as their CPU time; a click zooms, Ctrl-F searches.

Without a script it is a picture still. Nothing is loaded from anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from copyscope.escaping import for_html
from copyscope.exports.costs import costs
from copyscope.record.check import Whole
from copyscope.taxonomy.taxonomy import ACCOUNTS

WIDTH, ROW, TOP = 1200, 17, 56
# Of all CPU time; narrower frames are a hair.
LEAST = 0.0005
COPY, STAGE, SIDE = "#d9603b", "#e8b04b", "#8fa7bf"
STYLE = (
    "text{font:12px monospace;fill:#111}rect{stroke:#fff;stroke-width:.5}"
    ".f{cursor:pointer}.m rect{fill:#b05fd0}"
)
SCRIPT = """
const R=document.documentElement,F=[...R.querySelectorAll('g.f')],S=R.querySelector('#said');
const at=f=>[+f.dataset.x,+f.dataset.w];
function fit(f,x,w){const r=f.children[1],t=f.children[2];r.setAttribute('x',x);r.setAttribute('width',w);
 t.setAttribute('x',x+3);const n=Math.floor((w-6)/7.3),s=f.dataset.n;
 t.textContent=n<3?'':s.length<=n?s:s.slice(0,n-2)+'..'}
function zoom(to){const [x0,w0]=at(to);for(const f of F){const [x,w]=at(f);
 const below=x<=x0+1e-6&&x+w>=x0+w0-1e-6,inside=x>=x0-1e-6&&x+w<=x0+w0+1e-6;
 f.style.display=below||inside?'':'none';
 if(below)fit(f,0,WIDTH);else if(inside)fit(f,(x-x0)*WIDTH/w0,w*WIDTH/w0)}}
function find(p){let r;try{r=new RegExp(p,'i')}catch(e){r=null}const hit=[];
 for(const f of F){const m=!!p&&!!r&&r.test(f.dataset.n);f.classList.toggle('m',m);if(m)hit.push(at(f))}
 hit.sort((a,b)=>a[0]-b[0]||b[1]-a[1]);let end=-1,sum=0;for(const [x,w] of hit)if(x>=end-1e-6){sum+=w;end=x+w}
 S.textContent=p?p+': '+(100*sum/WIDTH).toFixed(1)+' % of the CPU time':''}
for(const f of F)f.addEventListener('click',()=>zoom(f));
R.querySelector('#search').addEventListener('click',()=>find(prompt('search (regular expression)')||''));
addEventListener('keydown',e=>{if((e.ctrlKey||e.metaKey)&&e.key==='f'){e.preventDefault();
 find(prompt('search (regular expression)')||'')}if(e.key==='Escape'){zoom(F[0]);find('')}});
"""


@dataclass
class Frame:
    """A function, and what it called."""

    name: str
    colour: str
    ns: int = 0
    below: dict[str, Frame] = field(default_factory=dict)

    def add(self, names: tuple[str, ...], ns: int, colour: str) -> None:
        self.ns += ns
        if names:
            # one function that belongs to two accounts is two frames: each has its own colour
            found = self.below.setdefault(f"{names[0]} {colour}", Frame(names[0], colour))
            found.add(names[1:], ns, colour)


def tree(run: Whole) -> Frame:
    """Everything under one root."""
    root = Frame("all", SIDE)
    for cost in costs(run):
        if cost.ns:
            colour = COPY if cost.account in ACCOUNTS else STAGE
            root.ns += cost.ns
            side = root.below.setdefault(cost.side, Frame(cost.side, SIDE))
            side.add((cost.where, *cost.frames), cost.ns, colour)
    return root


def draw(run: Whole) -> bytes:
    """The SVG; the same record gives the same bytes."""
    root = tree(run)
    boxes = list(_boxes(root, 0.0, 0, WIDTH / max(1, root.ns)))
    height = TOP + ROW * (1 + max(depth for _, _, depth, _ in boxes))
    body = "".join(_box(frame, x, depth, width, root.ns) for frame, x, depth, width in boxes)
    title = f"{run.raw.run.id}: CPU time, {root.ns / 1e6:.1f} ms; copies are red"
    if not run.raw.stacks:
        title += "; one frame each: this record has no stacks (--stacks keeps them)"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
        ' preserveAspectRatio="xMidYMin">'
        f"<title>{for_html(title)}</title><style>{STYLE}</style>"
        f'<rect width="{WIDTH}" height="{height}" fill="#fff"/><text x="4" y="18">{for_html(title)}</text>'
        f'<text x="4" y="38" id="search" class="f">search (Ctrl-F); Esc: all of it</text>'
        f'<text x="420" y="38" id="said"></text>{body}'
        f"<script><![CDATA[{SCRIPT.replace('WIDTH', str(WIDTH))}]]></script></svg>\n"
    ).encode()


def _boxes(frame: Frame, x: float, depth: int, scale: float) -> Iterator[tuple[Frame, float, int, float]]:
    """The root at the top, as an icicle: what is read first stands first."""
    yield frame, x, depth, frame.ns * scale
    for _, one in sorted(frame.below.items()):
        if one.ns * scale >= WIDTH * LEAST:
            yield from _boxes(one, x, depth + 1, scale)
        x += one.ns * scale


def _box(frame: Frame, x: float, depth: int, width: float, whole: int) -> str:
    y = TOP + depth * ROW
    name = for_html(frame.name)
    room = int((width - 6) / 7.3)
    short = frame.name if len(frame.name) <= room else f"{frame.name[: room - 2]}.." if room >= 3 else ""
    return (
        f'<g class="f" data-x="{x:.3f}" data-w="{width:.3f}" data-n="{name}">'
        f"<title>{name}: {frame.ns / 1e6:.2f} ms, {100 * frame.ns / max(1, whole):.1f} %</title>"
        f'<rect x="{x:.3f}" y="{y}" width="{width:.3f}" height="{ROW - 1}" fill="{frame.colour}"/>'
        f'<text x="{x + 3:.3f}" y="{y + 12}">{for_html(short)}</text></g>'
    )
