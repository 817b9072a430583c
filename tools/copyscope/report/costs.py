# SPDX-License-Identifier: GPL-2.0-only
"""Exports of a record's CPU time by call stack: folded lines, flame graph, pprof.

The sums agree with the ledger. A ledger row's CPU time is divided among the stacks sampled for that row in
proportion to their weights. A row without stacks (a copy that the traffic program timed itself) becomes a
single frame, named `[account]`. Bytes are not exported by stack, because samples do not show which stack
moved them.
"""

from __future__ import annotations

import gzip
import io
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple

from copyscope.base.spelling import for_html, visible
from copyscope.ledger.attribution import belongs_to_run
from copyscope.ledger.share import few_samples
from copyscope.record.derived import AccountRow
from copyscope.record.instruments import Sample, Stack
from copyscope.record.run import Run
from copyscope.report.table_files import CellValue, TableLines
from copyscope.show.columns import file_columns
from copyscope.show.ledger_cells import LedgerPart
from copyscope.show.ledger_rows import Row, every_row, kib_factor
from copyscope.taxonomy.accounts import ACCOUNTS
from copyscope.taxonomy.events import event_name, time_names
from copyscope.taxonomy.samples import frame_name

RowKey = tuple[str, str, str]  # (side, context, account or stage)
# Stage of CPU time that too few samples cannot divide.
UNDIVIDED = "unattributed"
Frames = tuple[str, ...]  # names of functions, from the outermost caller to the innermost callee


@dataclass(frozen=True)
class StackCost:
    """CPU time of one call stack in ns.

    side: process or group of processes, such as `sender`
    where: context, such as `process` or `softirq`
    account: account or stage of the ledger
    frames: names of functions, from the outermost caller to the innermost callee
    """

    side: str
    where: str
    account: str
    frames: Frames
    ns: int


def kind_of(row: Row) -> str:
    """Return `account` or `stage`: the kind of a row."""
    return "account" if isinstance(row, AccountRow) else "stage"


def bytes_and_calls(row: Row) -> tuple[int | None, int | None]:
    """Return the bytes and calls of a row; both are None for a stage."""
    return (row.bytes, row.calls) if isinstance(row, AccountRow) else (None, None)


def costs(run: Run) -> list[StackCost]:
    """Return the CPU time of each row of a run by stack.

    With too few samples, each side's CPU time is a single frame whose name says so.
    """
    stacks = _weights_by_row(run)
    stack_costs = _undivided(run)
    for row in every_row(run):
        side, where, name = row.side, row.context, row.category
        if row.cpu_ns:
            weights = stacks.get((side, where, name)) or {(f"[{name}]",): 1.0}
            total = sum(weights.values())
            stack_costs += [
                StackCost(side, where, name, frames, round(row.cpu_ns * weight / total))
                for frames, weight in sorted(weights.items())
            ]
    return stack_costs


def _undivided(run: Run) -> list[StackCost]:
    """Return each side's CPU time as a single frame if the run has too few samples, else no frame."""
    few = few_samples(run.raw, run.derived.sides)
    sides = {**run.derived.sides.processes(), "other": run.derived.sides.other}
    return [
        StackCost(name, "all", UNDIVIDED, (f"[{few}]",), round(side.cpu_ns))
        for name, side in sides.items()
        if few and side.cpu_ns
    ]


def _weights_by_row(run: Run) -> dict[RowKey, dict[Frames, float]]:
    """Return a mapping: row -> stack -> summed weights of the samples with this stack.

    If the record has no stacks, each stack has one frame: the function by which the sample was attributed.
    """
    samples: Sequence[Stack | Sample] = run.raw.stacks or run.raw.samples
    statuses = {event.name: event.status for event in run.raw.sampler.events}
    event_names = time_names({sample.event for sample in samples}, statuses) or ()
    weights: dict[RowKey, dict[Frames, float]] = defaultdict(lambda: defaultdict(float))
    for sample in samples:
        if event_name(sample.event) in event_names and sample.weight > 0 and belongs_to_run(sample):
            frames = tuple(sample.frames.split(";")) if isinstance(sample, Stack) else (sample.symbol,)
            weights[sample.side, sample.context, sample.category][frames] += sample.weight
    return weights


def _script() -> str:
    """Return the flame graph's script, with the sizes of the graph in pixels."""
    return SCRIPT.replace("LETTER_WIDTH", str(LETTER_WIDTH)).replace("WIDTH", str(WIDTH))


def folded(run: Run) -> bytes:
    """Return a line `side;caller;...;callee nanoseconds` per stack, as flamegraph.pl and inferno read it."""
    sums: dict[str, int] = defaultdict(int)
    for cost in costs(run):
        if cost.ns:
            sums[visible(";".join((cost.side, *cost.frames)))] += cost.ns
    return "".join(f"{stack} {ns}\n" for stack, ns in sorted(sums.items())).encode()


def table(run: Run) -> TableLines:
    """Return a table with one line for each account and stage of the ledger, by side and context."""
    per_kib = kib_factor(run)
    return [_line(LedgerPart(run, (row,), per_kib), row) for row in every_row(run)]


def _line(part: LedgerPart, row: Row) -> dict[str, CellValue]:
    """Return a mapping of column -> cell for one row. A float with an integral value becomes an integer."""
    line: dict[str, CellValue] = {"run": part.run.raw.run.id, "kind": kind_of(row), "name": row.category}
    line |= {"side": row.side, "context": row.context}
    line |= {column.name: column.value(part) for column in file_columns()}
    return {
        name: int(value) if isinstance(value, float) and value.is_integer() else value
        for name, value in line.items()
    }


# The flame graph is one SVG file. Its script zooms on a click and searches on Ctrl-F.
# Sizes in pixels: width of the graph, height of a frame, space above the frames, width of a letter.
WIDTH, FRAME_HEIGHT, TOP = 1200, 17, 56
LETTER_WIDTH = 7.3
# Minimum share of all CPU time for a frame to be drawn.
SHARE_MIN = 0.0005
COPY_COLOUR, STAGE_COLOUR, SIDE_COLOUR = "#d9603b", "#e8b04b", "#8fa7bf"
STYLE = (
    "svg{background:#fff}.paper{fill:#fff}"
    "text{font:12px monospace;fill:#111}rect{stroke:#fff;stroke-width:.5}"
    ".f{cursor:pointer}.m rect{fill:#b05fd0}"
    # Frames have the same colours in both themes, and so have their names.
    "@media (prefers-color-scheme:dark){svg{background:#0d1117}.paper{fill:#0d1117}"
    "text{fill:#e6edf3}g text{fill:#111}rect{stroke:#0d1117}}"
)
SCRIPT = """
const R=document.documentElement,F=[...R.querySelectorAll('g.f')],S=R.querySelector('#result');
const at=f=>[+f.dataset.x,+f.dataset.w];
function fit(f,x,w){const r=f.children[1],t=f.children[2];r.setAttribute('x',x);r.setAttribute('width',w);
 t.setAttribute('x',x+3);const n=Math.floor((w-6)/LETTER_WIDTH),s=f.dataset.n;
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
    """A function in a flame graph, with the functions that it called (`callees`) and their CPU time."""

    name: str
    colour: str
    ns: int = 0
    callees: dict[str, Frame] = field(default_factory=dict)

    def add(self, names: Frames, ns: int, colour: str) -> None:
        """Add CPU time to this frame and to the frames of its callees.

        names: functions below this frame, from its callee to the innermost callee
        colour: fill colour of new frames
        """
        self.ns += ns
        if names:
            # The key contains the colour: a function that runs in a copy and in a stage becomes two frames.
            callee = self.callees.setdefault(f"{names[0]} {colour}", Frame(names[0], colour))
            callee.add(names[1:], ns, colour)


def _call_tree(run: Run) -> Frame:
    """Return the outermost frame of the flame graph, which contains all stacks of a run."""
    root = Frame("all", SIDE_COLOUR)
    for cost in costs(run):
        if cost.ns:
            colour = COPY_COLOUR if cost.account in ACCOUNTS else STAGE_COLOUR
            root.ns += cost.ns
            side = root.callees.setdefault(cost.side, Frame(cost.side, SIDE_COLOUR))
            side.add((cost.where, *cost.frames), cost.ns, colour)
    return root


def flame_graph(run: Run) -> bytes:
    """Return the flame graph as SVG. Equal records give equal bytes."""
    root = _call_tree(run)
    boxes = list(_boxes(root, 0.0, 0, WIDTH / max(1, root.ns)))
    height = TOP + FRAME_HEIGHT * (1 + max(depth for _, _, depth, _ in boxes))
    body = "".join(_box(frame, x, depth, width, root.ns) for frame, x, depth, width in boxes)
    title = f"{run.raw.run.id}: CPU time, {root.ns / 1e6:.1f} ms; copies are red"
    if not run.raw.stacks:
        title += "; one frame per row, because this record has no stacks (record them with --stacks)"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img"'
        ' preserveAspectRatio="xMidYMin">'
        f"<title>{for_html(title)}</title><style>{STYLE}</style>"
        f'<rect class="paper" width="{WIDTH}" height="{height}"/>'
        f'<text x="4" y="18">{for_html(title)}</text>'
        f'<text x="4" y="38" id="search" class="f">search (Ctrl-F); Esc resets</text>'
        f'<text x="420" y="38" id="result"></text>{body}'
        f"<script><![CDATA[{_script()}]]></script></svg>\n"
    ).encode()


def _boxes(frame: Frame, x: float, depth: int, scale: float) -> Iterator[tuple[Frame, float, int, float]]:
    """Yield (frame, x, depth, width) of every box, callers before callees. Callers are drawn above callees.

    scale: pixels per ns of CPU time
    """
    yield frame, x, depth, frame.ns * scale
    for _, callee in sorted(frame.callees.items()):
        width = callee.ns * scale
        if width >= WIDTH * SHARE_MIN:
            yield from _boxes(callee, x, depth + 1, scale)
        x += width


def _box(frame: Frame, x: float, depth: int, width: float, total_ns: int) -> str:
    """Return the SVG for a frame, with a label cut to the frame's width.

    total_ns: CPU time of the whole graph
    """
    y = TOP + depth * FRAME_HEIGHT
    name = for_html(frame.name)
    letters = int((width - 6) / LETTER_WIDTH)
    if len(frame.name) <= letters:
        label = frame.name
    else:
        label = f"{frame.name[: letters - 2]}.." if letters >= 3 else ""
    return (
        f'<g class="f" data-x="{x:.3f}" data-w="{width:.3f}" data-n="{name}">'
        f"<title>{name}: {frame.ns / 1e6:.2f} ms, {100 * frame.ns / max(1, total_ns):.1f} %</title>"
        f'<rect x="{x:.3f}" y="{y}" width="{width:.3f}" height="{FRAME_HEIGHT - 1}" fill="{frame.colour}"/>'
        f'<text x="{x + 3:.3f}" y="{y + 12}">{for_html(label)}</text></g>'
    )


# profile.proto of pprof (https://github.com/google/pprof/blob/main/proto/profile.proto), encoded by hand. A
# protobuf message is a sequence of fields. Each field has a number, a wire type and a value: integers are
# varints, and everything else is preceded by its length in bytes.
class Strings:
    """A profile's string table. Index 0 is the empty string, as pprof requires."""

    def __init__(self) -> None:
        self.indices: dict[str, int] = {"": 0}

    def __getitem__(self, text: str) -> int:
        """Return the index of a string. A new string is added to the table."""
        return self.indices.setdefault(text, len(self.indices))


def varint(value: int) -> bytes:
    """Encode an integer in groups of seven bits, lowest group first. A negative integer has 64 bits."""
    encoded = bytearray()
    value &= (1 << 64) - 1
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*encoded, value))


def number_field(field: int, value: int) -> bytes:
    """Encode a field that holds an integer. `field`: number of the field."""
    return varint(field << 3) + varint(value)


def bytes_field(field: int, value: bytes) -> bytes:
    """Encode a field that holds a message, a text or packed numbers."""
    return varint(field << 3 | 2) + varint(len(value)) + value


def packed_field(field: int, values: Iterable[int]) -> bytes:
    """Encode a field that holds several integers. `field`: number of the field."""
    return bytes_field(field, b"".join(map(varint, values)))


class Place(NamedTuple):
    """A location in a pprof profile: a function, and the index of its mapping (0: none, as `[copy_in]`)."""

    function: str
    mapping: int


# Indices of the mappings of a profile. pprof takes the first mapping for the main program.
PROGRAM, KERNEL = 1, 2


def _places(cost: StackCost) -> list[Place]:
    """Return a stack's locations as pprof lists them: the innermost function first, the side last."""
    mapping = PROGRAM if cost.where == "user" else KERNEL
    frames = [Place(name, 0 if name.startswith("[") else mapping) for name in reversed(cost.frames)]
    return [*frames, Place(cost.side, 0)]


def pprof(run: Run) -> bytes:
    """Return a gzipped pprof profile: CPU time by stack, labelled by account, side and where."""
    strings, places = Strings(), dict[Place, int]()
    samples = []
    for cost in costs(run):
        numbers = [places.setdefault(place, len(places) + 1) for place in _places(cost)]
        sample = packed_field(1, numbers) + packed_field(2, (cost.ns,))
        labels = {"account": cost.account, "side": cost.side, "where": cost.where}
        for key, value in labels.items():
            sample += bytes_field(3, number_field(1, strings[key]) + number_field(2, strings[value]))
        samples.append(sample)
    cpu = strings["cpu"]
    profile = bytes_field(1, number_field(1, cpu) + number_field(2, strings["nanoseconds"]))
    profile += b"".join(bytes_field(2, sample) for sample in samples)
    profile += _mappings(run, strings) + _locations(run, places, strings)
    start_s = datetime.fromisoformat(run.raw.run.started).timestamp()
    comment = strings[f"copyscope {run.raw.run.id}"]
    profile += b"".join(bytes_field(6, text.encode(errors="replace")) for text in strings.indices)
    profile += number_field(9, int(start_s) * 10**9) + number_field(10, int(run.raw.run.measured_s * 1e9))
    profile += number_field(13, comment) + number_field(14, cpu)
    stream = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0) as out:
        out.write(profile)
    return stream.getvalue()


def _mappings(run: Run, strings: Strings) -> bytes:
    """Return a profile's mappings, named as in perf: the program with its libraries, and the kernel."""
    names = {PROGRAM: run.raw.target.program if run.raw.target else "traffic", KERNEL: "[kernel.kallsyms]"}
    # Field 7 says that the functions are known, so that pprof looks for no program file.
    return b"".join(
        bytes_field(3, number_field(1, index) + number_field(5, strings[name]) + number_field(7, 1))
        for index, name in names.items()
    )


def _locations(run: Run, places: Mapping[Place, int], strings: Strings) -> bytes:
    """Return a profile's locations and functions. Location N has function N."""
    sources, encoded = _sources(run), b""
    for place, index in places.items():
        path, line = sources.get(place.function, ("", 0))
        location = number_field(1, index) + number_field(2, place.mapping)
        location += bytes_field(4, number_field(1, index) + number_field(2, line))
        name_index = strings[place.function]
        function = number_field(1, index) + number_field(2, name_index) + number_field(3, name_index)
        encoded += bytes_field(4, location) + bytes_field(5, function + number_field(4, strings[path]))
    return encoded


def _sources(run: Run) -> dict[str, tuple[str, int]]:
    """Return the source file and line of each function that makes user-space copies.

    For a function that copies at several lines, the line with the most samples is returned.
    """
    sources: dict[str, tuple[str, int]] = {}
    for row in sorted(run.raw.user_callers or [], key=lambda row: row.samples):
        path, _, line = (row.source or "").rpartition(":")
        if row.caller is not None and line.isdecimal():
            sources[frame_name(row.caller)] = (path, int(line))
    return sources
