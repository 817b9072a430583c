"""The path of a byte as an SVG: each copy an arrow with its bytes and its price. A record in, text out.

The same record gives the same bytes. The drawing follows the reader's light or dark page, needs no font of
its own, and refers to nothing outside of itself.
"""

from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap
from typing import NamedTuple

from copyscope import units
from copyscope.escaping import for_html, one_line
from copyscope.ledger.flows import TO_RELAY
from copyscope.record.check import Whole
from copyscope.record.derived import AccountRow
from copyscope.record.segments import relays
from copyscope.show.account_words import WORDS, called
from copyscope.show.ledger_table import occurring, of_relay

WIDTH = 960
# Left edges of the three boxes in the kernel; the first and the last have the programs' memory above them.
LEFT, MIDDLE, RIGHT = 30, 390, 750
BOX_WIDTH, BOX_HEIGHT = 180, 56
ROOM = 150  # between a box and the one below it: an arrow with lines of text beside it
BORDER = 34  # of it above the border between programs and kernel
LINE = 17
# What happens before the send call, in the program.
BEFORE = ("file_read", "gather", "user_encrypt", TO_RELAY)
# Causes of a late copy that the kernel makes before the packet reaches the device.
BEFORE_DEVICE = ("no_offload", "packet_socket", "timestamps")
STYLE = """\
text{font:13px system-ui,sans-serif;fill:#1f2328}
.head{font-size:16px;font-weight:600} .name{font-weight:600} .soft{fill:#59636e}
.box{fill:#f6f8fa;stroke:#59636e} .edge{stroke:#818b98;stroke-dasharray:6 5}
.copy,.late{stroke-width:7} .none{stroke-width:2;stroke-dasharray:5 4} .copy,.late,.none{fill:none}
.copy{stroke:#0969da} .late{stroke:#c93c00} .none{stroke:#59636e}
.tip-copy{fill:#0969da} .tip-late{fill:#c93c00} .tip-none{fill:#59636e}
@media (prefers-color-scheme:dark){
text{fill:#e6edf3} .soft{fill:#9198a1}
.box{fill:#161b22;stroke:#9198a1} .edge{stroke:#656c76}
.copy{stroke:#4493f8} .late{stroke:#ff8e57} .none{stroke:#9198a1}
.tip-copy{fill:#4493f8} .tip-late{fill:#ff8e57} .tip-none{fill:#9198a1}
}"""


class Step(NamedTuple):
    """One arrow: how it is drawn, and the lines beside it; the first one is its name."""

    kind: str
    lines: list[str]


def draw(run: Whole) -> str:
    """The whole drawing. Foreign text in it (names of programs and devices) is escaped."""
    steps = _steps(run)
    top = 64
    above = len(set(BEFORE) & set(steps))
    # where the buffer that is sent lies: below two steps of three lines each, or more
    user = top + (BOX_HEIGHT + ROOM + max(0, above - 2) * 3 * LINE if above else 0)
    kernel = user + BOX_HEIGHT + ROOM
    below = kernel + BOX_HEIGHT + 28
    hops = _hops(run, steps)
    foot = below + LINE * (1 + max(len(hop.lines) for hop in hops))
    notes = _notes(run)
    parts = [
        *_opening(run, foot + LINE * (len(notes) + 2)),
        *_sending(run, steps, top, user, kernel),
        *_crossing(run, hops, kernel, below),
        *_receiving(run, steps, user, kernel),
        *(text(LEFT, foot + LINE * number, line, "soft") for number, line in enumerate(notes)),
        *_legend(foot + LINE * (len(notes) + 0.6)),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _steps(run: Whole) -> dict[str, Step]:
    """Account -> its arrow, of the accounts that the record's ledger shows."""
    rows = occurring(run.derived.ledger)
    made = {}
    taken = of_relay(run, rows)
    for account, words in WORDS.items():
        mine = [row for row in rows if row.account == account and row not in taken]
        if mine:
            made[account] = Step(words.arrow, [words.step, _amount(mine), *_share(mine)])
    if taken:
        name = called("copy_out", watched=False, side="sender")
        made[TO_RELAY] = Step("copy", [name, _amount(taken), *_share(taken)])
    return made


def _amount(rows: Sequence[AccountRow]) -> str:
    """`9.79 GiB, 186.2 ns/KiB`: all rows of an account together."""
    prices = [row.ns_per_kib for row in rows if row.ns_per_kib is not None]
    price = units.format_tenths(sum(prices)) if prices else units.NOT_AVAILABLE
    moved = [row.bytes for row in rows if row.bytes is not None]
    amount = units.format_bytes(sum(moved)) if moved else f"bytes {units.NOT_AVAILABLE}"
    # a completion moves nothing: 0 B would be read as a finding
    start = "" if rows[0].account == "completion" else f"{amount}, "
    return f"{start}{price} ns/KiB"


def _share(rows: Sequence[AccountRow]) -> list[str]:
    """`18.9 % of all CPU time`, and whether some of it was in softirqs."""
    share = sum(row.share or 0.0 for row in rows)
    softirq = any(row.share and row.context == "softirq" for row in rows)
    where = ", in softirq" if softirq else ""
    return [f"{units.format_percent(share)} of all CPU time{where}"] if share else []


def _hops(run: Whole, steps: Mapping[str, Step]) -> list[Step]:
    """What happens on the way from the socket to the device, and from there to the other socket."""
    local = bool(run.raw.topology.local_delivery)
    cause = run.derived.zerocopy.cause if run.derived.zerocopy else None
    code = cause.code if cause else None
    ways: list[list[Step]] = [[], []]
    if "deferred" in steps:
        behind = code not in BEFORE_DEVICE and (local or code in ("local_delivery", "received"))
        ways[int(behind)].append(steps["deferred"])
    if "silent" in steps:
        ways[int(local)].append(steps["silent"])
    by_device = "the same pages, no copy" if local else "the device reads memory (DMA)"
    arrives = "the same pages, no copy" if local else "the device writes memory (DMA)"
    empty = (Step("none", [by_device]), Step("none", [arrives]))
    return [_together(way) if way else otherwise for way, otherwise in zip(ways, empty, strict=True)]


def _opening(run: Whole, height: float) -> list[str]:
    what = _what(run)
    valid = run.derived.verdict.valid or run.is_partial
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:g}" role="img">',
        f"<title>{safe(f'The path of a byte: {what}')}</title>",
        f"<style>{STYLE}</style>",
        text(LEFT, 28, what, "head"),
        text(LEFT, 48, _measured(run) if valid else "INVALID RUN: do not use its figures", "soft"),
    ]


def _what(run: Whole) -> str:
    if run.raw.target is not None:
        return f"{run.raw.target.name}, a watched program"
    work = run.raw.asked
    size = units.format_bytes(work.size_bytes)
    threads = f", {work.threads} threads" if work.threads > 1 else ""
    fields = units.counted(work.fields, "field")
    return f"{work.impl}: {size} in {fields}{threads}, over {run.raw.topology.kind}"


def _measured(run: Whole) -> str:
    goodput = run.derived.throughput_gbps.unprobed
    machine = run.raw.machine
    control = "with its bytes counted" if run.raw.target is not None else "without instruments"
    speed = f"{units.format_gbps(goodput)} {control}; " if goodput is not None else ""
    return f"{speed}measured on Linux {machine.kernel}, {machine.cpu_model or 'processor not known'}"


def _sending(run: Whole, steps: Mapping[str, Step], top: float, user: float, kernel: float) -> list[str]:
    program, what = _memory(run)
    parts = _border(user + BOX_HEIGHT + BORDER)
    above = [steps[name] for name in BEFORE if name in steps]
    if above:
        before = ("a file", "page cache") if "file_read" in steps else (program, what)
        before = ("socket buffer (skb)", "of the relay's first socket") if TO_RELAY in steps else before
        parts += _box(LEFT, top, *before) + _down(top, user, _together(above))
        parts += _box(LEFT, user, program, "one buffer" if "gather" in steps else what)
    else:
        parts += _box(LEFT, user, program, what)
    entering = [steps[name] for name in ("copy_in", "pin", "encrypt") if name in steps]
    if entering:
        parts += _down(user, kernel, _together(entering))
    parts += _box(LEFT, kernel, "socket buffer (skb)", "kernel, sending side")
    if "completion" in steps:
        middle, back = MIDDLE + BOX_WIDTH - 30, user + 14
        parts.append(f'<path class="none" d="M{middle:g} {kernel:g}V{back:g}H{LEFT + BOX_WIDTH + 12}"/>')
        parts += _tip(LEFT + BOX_WIDTH, back, "none", "left")
        parts += _lines(LEFT + BOX_WIDTH + 20, back + LINE, steps["completion"].lines, "start")
    return parts


def _memory(run: Whole) -> tuple[str, str]:
    """Where the bytes are before they are sent, and in how many pieces."""
    if run.raw.target is not None:
        return "the program's memory", "what it sends"
    work = run.raw.asked
    if relays(run.raw.run):
        copied = of_relay(run, occurring(run.derived.ledger))
        return ("relay's memory", "one buffer") if copied else ("a pipe", "the pages that came in")
    if work.impl == "sendfile":
        return "a file", "pages of the page cache"
    return "sender's memory", f"{work.fields} fields"


def _crossing(run: Whole, hops: Sequence[Step], kernel: float, below: float) -> list[str]:
    parts = _box(MIDDLE, kernel, *_device(run))
    height = kernel + BOX_HEIGHT / 2
    for start, end, hop in ((LEFT, MIDDLE, hops[0]), (MIDDLE, RIGHT, hops[1])):
        begin = start + BOX_WIDTH
        parts.append(f'<path class="{hop.kind}" d="M{begin:g} {height:g}H{end - 12:g}"/>')
        parts += _tip(end, height, hop.kind, "right")
        parts += _lines((begin + end) / 2, below, hop.lines, "middle")
    return parts


def _device(run: Whole) -> tuple[str, str]:
    topology = run.raw.topology
    names = [device.name for device in topology.devices]
    kind = "network" if run.raw.target is not None else str(topology.kind)
    return kind, ", ".join(dict.fromkeys(names))


def _receiving(run: Whole, steps: Mapping[str, Step], user: float, kernel: float) -> list[str]:
    watched = run.raw.target is not None
    parts = _box(RIGHT, kernel, "socket buffer (skb)", "kernel, receiving side")
    taken = [steps[name] for name in ("decrypt", "copy_out", "mapped") if name in steps]
    if taken:
        both, middle = _together(taken), RIGHT + BOX_WIDTH / 2
        parts.append(f'<path class="{both.kind}" d="M{middle:g} {kernel:g}V{user + BOX_HEIGHT + 12:g}"/>')
        parts += _tip(middle, user + BOX_HEIGHT, both.kind, "up")
        parts += _lines(middle - 16, user + BOX_HEIGHT + BORDER + 26, both.lines, "end")
        where = ("the program's memory", "what it receives") if watched else ("receiver's memory", "")
        parts += _box(RIGHT, user, *where)
    elif not watched and run.raw.asked.receiver == "splice":
        parts += _box(RIGHT, user, "a pipe", "the same pages (splice)")
    elif not watched:
        parts += _box(RIGHT, user, "thrown away", "without a copy (MSG_TRUNC)")
    return parts


def _together(steps: Sequence[Step]) -> Step:
    """Two ways between the same two places: one arrow, their lines, drawn as the first that copies."""
    kind = next((step.kind for step in steps if step.kind != "none"), "none")
    return Step(kind, [line for step in steps for line in step.lines])


def _border(height: float) -> list[str]:
    return [
        f'<path class="edge" d="M{LEFT} {height:g}H{RIGHT + BOX_WIDTH}"/>',
        text(RIGHT + BOX_WIDTH, height - 6, "programs", "soft", "end"),
        text(RIGHT + BOX_WIDTH, height + 16, "kernel", "soft", "end"),
    ]


def _notes(run: Whole) -> list[str]:
    """Why there is a late copy, where the record knows it, in lines that fit."""
    cause = run.derived.zerocopy.cause if run.derived.zerocopy else None
    if not cause:
        return []
    return wrap(f"Why the copy was made: {one_line(cause.sentence, 300)}.", 130)


def _legend(height: float) -> list[str]:
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
    middle = LEFT + BOX_WIDTH / 2
    return [
        f'<path class="{step.kind}" d="M{middle:g} {upper + BOX_HEIGHT:g}V{lower - 12:g}"/>',
        *_tip(middle, lower, step.kind, "down"),
        *_lines(middle + 16, upper + BOX_HEIGHT + BORDER + 26, step.lines, "start"),
    ]


def _tip(x: float, y: float, kind: str, points: str) -> list[str]:
    """The head of an arrow that ends at (x, y)."""
    corners = {
        "right": (-14, -9, -14, 9),
        "left": (14, -9, 14, 9),
        "down": (-9, -14, 9, -14),
        "up": (-9, 14, 9, 14),
    }[points]
    first, second = (f"{x + dx:g} {y + dy:g}" for dx, dy in (corners[:2], corners[2:]))
    return [f'<path class="tip-{kind}" d="M{x:g} {y:g}L{first}L{second}z"/>']


def _box(x: float, y: float, title: str, below: str) -> list[str]:
    middle = x + BOX_WIDTH / 2
    return [
        f'<rect class="box" x="{x:g}" y="{y:g}" width="{BOX_WIDTH}" height="{BOX_HEIGHT}" rx="6"/>',
        text(middle, y + (24 if below else 33), title, "name", "middle", most=24),
        *([text(middle, y + 43, below, "soft", "middle", most=27)] if below else []),
    ]


def _lines(x: float, y: float, lines: Iterable[str], anchor: str) -> list[str]:
    """Lines below each other; those that name an account are bold."""
    names = {words.step for words in WORDS.values()}
    return [
        text(x, y + LINE * number, line, "name" if line in names else "", anchor)
        for number, line in enumerate(lines)
    ]


def text(x: float, y: float, said: str, look: str = "", anchor: str = "start", *, most: int = 140) -> str:
    looks = f' class="{look}"' if look else ""
    anchors = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{x:g}" y="{y:g}"{looks}{anchors}>{safe(said, most)}</text>'


def safe(said: str, most: int = 140) -> str:
    return for_html(one_line(said, most))
