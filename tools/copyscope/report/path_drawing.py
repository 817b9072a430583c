# SPDX-License-Identifier: GPL-2.0-only
"""SVG drawing of a byte's path through a run: each copy is an arrow with its bytes and its cost.

Equal records give equal bytes. The drawing follows the viewer's light or dark theme, and loads no fonts or
other files.
"""

from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap
from typing import NamedTuple

from copyscope.base import spelling
from copyscope.base.spelling import for_html, one_line
from copyscope.ledger.flows import TO_RELAY
from copyscope.ledger.noise import beside_goodput
from copyscope.ledger.share import few_samples, supported
from copyscope.record.derived import AccountRow
from copyscope.record.run import Run
from copyscope.record.segments import is_relay
from copyscope.show.ledger_rows import copies_to_relay, occurring
from copyscope.taxonomy.accounts import ACCOUNTS, Leg, called

# Sizes and positions of the drawing in pixels.
WIDTH = 960
# Left edges of the three boxes in the kernel. The memory of the programs is above the first and last box.
LEFT, MIDDLE, RIGHT = 30, 390, 750
BOX_WIDTH, BOX_HEIGHT = 180, 56
ARROW_ROOM = 150  # height of the space between two boxes, for an arrow with lines of text
BORDER = 34  # distance from a box down to the border between programs and kernel
LINE_HEIGHT = 17
# Causes of a late copy that the kernel makes before the packet reaches the device.
BEFORE_DEVICE = ("no_offload", "packet_socket", "timestamps")
STYLE = """\
svg{background:#fff}
text{font:13px system-ui,sans-serif;fill:#1f2328}
.head{font-size:16px;font-weight:600} .name{font-weight:600} .soft{fill:#59636e}
.box{fill:#f6f8fa;stroke:#59636e} .edge{stroke:#818b98;stroke-dasharray:6 5}
.copy,.late{stroke-width:7} .none{stroke-width:2;stroke-dasharray:5 4} .copy,.late,.none{fill:none}
.copy{stroke:#0969da} .late{stroke:#c93c00} .none{stroke:#59636e}
.tip-copy{fill:#0969da} .tip-late{fill:#c93c00} .tip-none{fill:#59636e}
@media (prefers-color-scheme:dark){
svg{background:#0d1117}
text{fill:#e6edf3} .soft{fill:#9198a1}
.box{fill:#161b22;stroke:#9198a1} .edge{stroke:#656c76}
.copy{stroke:#4493f8} .late{stroke:#ff8e57} .none{stroke:#9198a1}
.tip-copy{fill:#4493f8} .tip-late{fill:#ff8e57} .tip-none{fill:#9198a1}
}"""


class Step(NamedTuple):
    """An arrow of the drawing.

    kind: CSS class
    lines: lines of text; the first is the arrow's name
    """

    kind: str
    lines: list[str]


def draw(run: Run) -> str:
    """Return the drawing of a run as SVG. Program and device names in the text are escaped.

    Raises ValueError if the run sent nothing.
    """
    if not run.derived.rx_bytes and not run.derived.tx_bytes:
        raise ValueError("nothing was sent in this run: there is no path to draw")
    steps = _steps(run)
    top = 64
    above = len(_steps_of_leg(steps, "program"))
    # Steps before the send call need an additional box at the top. More than two of them need more height.
    user = top + (BOX_HEIGHT + ARROW_ROOM + max(0, above - 2) * 3 * LINE_HEIGHT if above else 0)
    kernel = user + BOX_HEIGHT + ARROW_ROOM
    below = kernel + BOX_HEIGHT + 28
    hops = _hops(run, steps)
    foot = below + LINE_HEIGHT * (1 + max(len(hop.lines) for hop in hops))
    notes = _notes(run)
    parts = [
        *_opening(run, foot + LINE_HEIGHT * (len(notes) + 2)),
        *_sending(run, steps, top, user, kernel),
        *_crossing(run, hops, kernel, below),
        *_receiving(run, steps, user, kernel),
        *(text(LEFT, foot + LINE_HEIGHT * number, line, "soft") for number, line in enumerate(notes)),
        *_legend(foot + LINE_HEIGHT * (len(notes) + 0.6)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _steps(run: Run) -> dict[str, Step]:
    """Return a mapping: account -> arrow, for the accounts whose work the run has seen."""
    rows = [row for row in supported(run, occurring(run.derived.ledger)) if not _is_unknown(row)]
    steps = {}
    relay_rows = copies_to_relay(run, rows)
    for name, account in ACCOUNTS.items():
        account_rows = [row for row in rows if row.account == name and row not in relay_rows]
        if account_rows:
            steps[name] = Step(account.arrow, [account.title, _amount(account_rows), *_share(account_rows)])
    if relay_rows:
        title = called("copy_out", watched=False, side="sender")
        steps[TO_RELAY] = Step("copy", [title, _amount(relay_rows), *_share(relay_rows)])
    return steps


def _steps_of_leg(steps: Mapping[str, Step], leg: Leg) -> list[Step]:
    """Return the steps of one part of the path. Copies into a relay's memory belong to the part `program`."""
    legs = {name: account.leg for name, account in ACCOUNTS.items()} | {TO_RELAY: "program"}
    return [step for name, step in steps.items() if legs[name] == leg]


def _is_unknown(row: AccountRow) -> bool:
    """Return True if neither bytes nor CPU time are known: an arrow would claim that the copy happens."""
    return row.bytes is None and row.cpu_ns is None and not (row.calls or row.samples)


def _amount(rows: Sequence[AccountRow]) -> str:
    """Format the bytes and the cost of an account's rows: `9.79 GiB, 186.2 ns/KiB`."""
    costs = [row.ns_per_kib for row in rows if row.ns_per_kib is not None]
    cost = spelling.format_tenths(sum(costs)) if costs else spelling.NOT_AVAILABLE
    counted_bytes = [row.bytes for row in rows if row.bytes is not None]
    amount = spelling.format_bytes(sum(counted_bytes)) if counted_bytes else f"bytes {spelling.NOT_AVAILABLE}"
    # Leave out the bytes of a notification, because 0 B would look like a measured result.
    start = "" if ACCOUNTS[rows[0].account].leg == "notice" else f"{amount}, "
    return f"{start}{cost} ns/KiB"


def _share(rows: Sequence[AccountRow]) -> list[str]:
    """Format an account's share: `18.9 % of all CPU time, in softirq`."""
    share = sum(row.share or 0.0 for row in rows)
    softirq = any(row.share and row.context == "softirq" for row in rows)
    where = ", in softirq" if softirq else ""
    return [f"{spelling.format_percent(share)} of all CPU time{where}"] if share else []


def _hops(run: Run, steps: Mapping[str, Step]) -> list[Step]:
    """Return two arrows: from the sender's socket to the device, and from there to the receiver's socket.

    steps: account -> arrow
    """
    local = bool(run.raw.topology.local_delivery)
    cause = run.derived.zerocopy.cause if run.derived.zerocopy else None
    code = cause.code if cause else None
    hops: list[list[Step]] = [[], []]
    after_device = code not in BEFORE_DEVICE and (local or code in ("local_delivery", "received"))
    for name, step in steps.items():
        if name in ACCOUNTS and ACCOUNTS[name].leg == "way":
            hops[int(after_device if name == "deferred" else local)].append(step)
    by_device = "the same pages, no copy" if local else "the device reads memory (DMA)"
    to_socket = "the same pages, no copy" if local else "the device writes memory (DMA)"
    empty = (Step("none", [by_device]), Step("none", [to_socket]))
    return [_merge_steps(hop) if hop else no_copy for hop, no_copy in zip(hops, empty, strict=True)]


def _opening(run: Run, height: float) -> list[str]:
    """Return the start of the SVG: its size, style, title and subtitle."""
    title = _title(run)
    valid = run.derived.verdict.valid or run.is_partial
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img">',
        f"<title>{safe(f'The path of a byte: {title}')}</title>",
        f"<style>{STYLE}</style>",
        text(LEFT, 28, title, "head"),
        text(LEFT, 48, _subtitle(run) if valid else "INVALID RUN: do not use its figures", "soft"),
    ]


def _title(run: Run) -> str:
    """Return the title of the drawing: the watched program, or the strategy with its settings."""
    if run.raw.target is not None:
        target = run.raw.target
        return target.title if target.how == "all" else f"{target.title}, a watched program"
    work = run.raw.asked
    size = spelling.format_bytes(work.size_bytes)
    threads = f", {work.threads} threads" if work.threads > 1 else ""
    fields = spelling.counted(work.fields, "field")
    return f"{work.impl}: {size} in {fields}{threads}, over {run.raw.topology.kind}"


def _subtitle(run: Run) -> str:
    goodput = run.derived.throughput_gbps.unprobed
    machine = run.raw.machine
    control = "with its bytes counted" if run.raw.target is not None else "without instruments"
    speed = f"{spelling.format_gbps(goodput)} {control}; " if goodput is not None else ""
    return f"{speed}measured on Linux {machine.kernel}, {machine.cpu_model or 'unknown processor'}"


def _sending(run: Run, steps: Mapping[str, Step], top: float, user: float, kernel: float) -> list[str]:
    """Return the sender's boxes and arrows, from its memory to its socket buffer.

    steps: account -> arrow
    top, user, kernel: upper edges of the boxes for the origin, the program's memory and the kernel
    """
    program, content = _memory(run)
    parts = _border(user + BOX_HEIGHT + BORDER)
    above = _steps_of_leg(steps, "program")
    if above:
        origin = ("a file", "page cache") if "file_read" in steps else (program, content)
        origin = ("socket buffer (skb)", "of the relay's first socket") if TO_RELAY in steps else origin
        parts += _box(LEFT, top, *origin) + _down(top, user, _merge_steps(above))
        parts += _box(LEFT, user, program, "one buffer" if "gather" in steps else content)
    else:
        parts += _box(LEFT, user, program, content)
    if entering := _steps_of_leg(steps, "send call"):
        parts += _down(user, kernel, _merge_steps(entering))
    parts += _box(LEFT, kernel, "socket buffer (skb)", "kernel, sending side")
    if notices := _steps_of_leg(steps, "notice"):
        middle, back = MIDDLE + BOX_WIDTH - 30, user + 14
        parts.append(f'<path class="none" d="M{middle:g} {kernel:g}V{back:g}H{LEFT + BOX_WIDTH + 12}"/>')
        parts += _tip(LEFT + BOX_WIDTH, back, "none", "left")
        parts += _lines(LEFT + BOX_WIDTH + 20, back + LINE_HEIGHT, _merge_steps(notices).lines, "start")
    return parts


def _memory(run: Run) -> tuple[str, str]:
    """Return two texts for the box of the sent memory: its name and its content."""
    if run.raw.target is not None:
        return "the program's memory", "data to send"
    work = run.raw.asked
    if is_relay(run.raw.run):
        copied = copies_to_relay(run, occurring(run.derived.ledger))
        return ("relay's memory", "one buffer") if copied else ("a pipe", "the pages that came in")
    if work.impl == "sendfile":
        return "a file", "pages of the page cache"
    return "sender's memory", f"{work.fields} fields"


def _crossing(run: Run, hops: Sequence[Step], kernel: float, below: float) -> list[str]:
    """Return the box of the device, and the arrows between the device and the sockets.

    hops: arrow to the device, and arrow from the device
    kernel: upper edge of the box
    below: height of the arrows' text
    """
    parts = _box(MIDDLE, kernel, *_device(run))
    height = kernel + BOX_HEIGHT / 2
    for start, end, hop in ((LEFT, MIDDLE, hops[0]), (MIDDLE, RIGHT, hops[1])):
        begin = start + BOX_WIDTH
        parts.append(f'<path class="{hop.kind}" d="M{begin:g} {height:g}H{end - 12:g}"/>')
        parts += _tip(end, height, hop.kind, "right")
        parts += _lines((begin + end) / 2, below, hop.lines, "middle")
    return parts


def _device(run: Run) -> tuple[str, str]:
    topology = run.raw.topology
    names = [device.name for device in topology.devices]
    kind = "network" if run.raw.target is not None else str(topology.kind)
    return kind, ", ".join(dict.fromkeys(names))


def _receiving(run: Run, steps: Mapping[str, Step], user: float, kernel: float) -> list[str]:
    """Return the receiver's boxes and arrow, from its socket buffer to its memory.

    steps: account -> arrow
    user, kernel: upper edges of the boxes for the program's memory and the kernel
    """
    watched = run.raw.target is not None
    parts = _box(RIGHT, kernel, "socket buffer (skb)", "kernel, receiving side")
    if received := _steps_of_leg(steps, "receive call"):
        merged, middle = _merge_steps(received), RIGHT + BOX_WIDTH / 2
        parts.append(f'<path class="{merged.kind}" d="M{middle:g} {kernel:g}V{user + BOX_HEIGHT + 12:g}"/>')
        parts += _tip(middle, user + BOX_HEIGHT, merged.kind, "up")
        parts += _lines(middle - 16, user + BOX_HEIGHT + BORDER + 26, merged.lines, "end")
        where = ("the program's memory", "received data") if watched else ("receiver's memory", "")
        parts += _box(RIGHT, user, *where)
    elif not watched and run.raw.asked.receiver == "splice":
        parts += _box(RIGHT, user, "a pipe", "the same pages (splice)")
    elif not watched:
        parts += _box(RIGHT, user, "discarded", "without a copy (MSG_TRUNC)")
    return parts


def _merge_steps(steps: Sequence[Step]) -> Step:
    """Merge the steps between two boxes into one arrow, which looks like the first step that copies."""
    kind = next((step.kind for step in steps if step.kind != "none"), "none")
    return Step(kind, [line for step in steps for line in step.lines])


def _border(height: float) -> list[str]:
    """Return the dashed line at `height` that separates programs from the kernel."""
    return [
        f'<path class="edge" d="M{LEFT} {height:g}H{RIGHT + BOX_WIDTH}"/>',
        text(RIGHT + BOX_WIDTH, height - 6, "programs", "soft", "end"),
        text(RIGHT + BOX_WIDTH, height + 16, "kernel", "soft", "end"),
    ]


def _notes(run: Run) -> list[str]:
    """Return caveats and the cause of a late copy, wrapped to the drawing's width."""
    few = few_samples(run.raw, run.derived.sides)
    notes = [f"n/a: {few}."] if few else []
    unknown = {ACCOUNTS[row.account].title for row in occurring(run.derived.ledger) if _is_unknown(row)}
    if unknown:
        notes += wrap(f"Not drawn, because nothing is known about them: {', '.join(sorted(unknown))}.", 130)
    noise = beside_goodput(run.derived.machine_state)
    if noise and run.derived.throughput_gbps.unprobed is not None:
        notes += wrap(f"The goodput was measured{noise}.", 130)
    cause = run.derived.zerocopy.cause if run.derived.zerocopy else None
    if cause:
        notes += wrap(f"Why the copy was made: {one_line(cause.sentence, 300)}.", 130)
    return notes


def _legend(height: float) -> list[str]:
    """Return the legend of the arrows. `height`: vertical position of the legend."""
    parts, left = [], float(LEFT)
    for kind, meaning in (
        ("copy", "the CPU copies every byte"),
        ("late", "a copy that a zero-copy send did not avoid"),
        ("none", "no copy by the CPU"),
    ):
        parts.append(f'<path class="{kind}" d="M{left:g} {height - 4:g}H{left + 34:g}"/>')
        parts.append(text(left + 44, height, meaning, "soft"))
        left += 250 if kind == "copy" else 380
    return parts


def _down(upper: float, lower: float, step: Step) -> list[str]:
    """Return an arrow with text from the sender's box at height `upper` down to the box at `lower`."""
    middle = LEFT + BOX_WIDTH / 2
    return [
        f'<path class="{step.kind}" d="M{middle:g} {upper + BOX_HEIGHT:g}V{lower - 12:g}"/>',
        *_tip(middle, lower, step.kind, "down"),
        *_lines(middle + 16, upper + BOX_HEIGHT + BORDER + 26, step.lines, "start"),
    ]


def _tip(x: float, y: float, kind: str, direction: str) -> list[str]:
    """Return the head of an arrow that ends at (x, y). `kind`: CSS class of the arrow."""
    corners = {
        "right": (-14, -9, -14, 9),
        "left": (14, -9, 14, 9),
        "down": (-9, -14, 9, -14),
        "up": (-9, 14, 9, 14),
    }[direction]
    first, second = (f"{x + dx:g} {y + dy:g}" for dx, dy in (corners[:2], corners[2:]))
    return [f'<path class="tip-{kind}" d="M{x:g} {y:g}L{first}L{second}z"/>']


def _box(x: float, y: float, title: str, below: str) -> list[str]:
    middle = x + BOX_WIDTH / 2
    return [
        f'<rect class="box" x="{x:g}" y="{y:g}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6"/>',
        text(middle, y + (24 if below else 33), title, "name", "middle", letters_max=24),
        *([text(middle, y + 43, below, "soft", "middle", letters_max=27)] if below else []),
    ]


def _lines(x: float, y: float, lines: Iterable[str], anchor: str) -> list[str]:
    """Return lines of text below each other. Names of accounts are bold."""
    names = {account.title for account in ACCOUNTS.values()}
    return [
        text(x, y + LINE_HEIGHT * number, line, "name" if line in names else "", anchor)
        for number, line in enumerate(lines)
    ]


def text(
    x: float, y: float, content: str, css_class: str = "", anchor: str = "start", *, letters_max: int = 140
) -> str:
    """Return an SVG text element. Text longer than `letters_max` characters is cut, and markup is escaped."""
    class_attribute = f' class="{css_class}"' if css_class else ""
    anchor_attribute = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{x:g}" y="{y:g}"{class_attribute}{anchor_attribute}>{safe(content, letters_max)}</text>'


def safe(content: str, letters_max: int = 140) -> str:
    return for_html(one_line(content, letters_max))
