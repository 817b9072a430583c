"""A watched program while it runs: a screen of 80x24 or more, or a line each second or two without one."""

import sys
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self, TextIO

from rich.live import Live
from rich.text import Text

from copyscope import units
from copyscope.escaping import visible
from copyscope.grouping import grouped
from copyscope.ledger import machine_state
from copyscope.record.check import Whole
from copyscope.record.segments import select, total, wall_ns
from copyscope.show.account_words import called
from copyscope.show.console import SafeConsole, has_screen
from copyscope.show.first_screen import quiet
from copyscope.show.layout import LABEL_WIDTH
from copyscope.show.ledger_table import every_row, position, too_few
from copyscope.taxonomy.taxonomy import ACCOUNTS

SMALLEST_ROWS = 16
# How the rows are sorted, one after the other.
ORDERS = ("path", "share", "name")
HISTORY_MAX = 120
# What is new is worked out and shown so often at most: segments are shorter.
SHOW_EVERY_NS = 900_000_000
# Lines of the screen that are no bars.
FRAME_LINES = 13


class LiveView:
    """Used as a context manager; update() with each new record. Without `wanted` it does nothing.

    `every_s`: lines, one after so many seconds each, instead of a screen.
    """

    def __init__(
        self,
        *,
        wanted: bool,
        stream: TextIO | None = None,
        every_s: float | None = None,
        duration_s: float | None = None,
    ) -> None:
        self._console = SafeConsole(file=sys.stdout if stream is None else stream)
        terminal = wanted and every_s is None and has_screen(self._console)
        self._live = Live(console=self._console, screen=True, auto_refresh=False) if terminal else None
        self.wanted = wanted
        self._in_step = every_s is not None
        self._every_ns = SHOW_EVERY_NS if every_s is None else round(every_s * 1e9)
        self._began_ns: int | None = None
        self._due_ns = 0
        self._now = Shown(duration_s=duration_s, blocks=self._console.encoding.startswith("utf"))
        self._paused = False

    @property
    def has_keys(self) -> bool:
        """Whether it is a screen, which obeys press()."""
        return self._live is not None

    def is_due(self, now_ns: int) -> bool:
        """Whether it is time for a new picture; the first line of some seconds comes when these are over."""
        if not self.wanted:
            return False
        if self._in_step and self._began_ns is None:
            self._began_ns, self._due_ns = now_ns, now_ns + self._every_ns
        due = now_ns >= self._due_ns
        if due:
            late_ns = (now_ns - self._due_ns) % self._every_ns if self._in_step else 0
            self._due_ns = now_ns - late_ns + self._every_ns
        return due

    def update(self, run: Whole) -> None:
        if not self.wanted:
            return
        segments = run.raw.run.segments
        if self._began_ns is None:
            self._began_ns = segments[0].begin_ns
        self._now.add(run, (segments[-1].end_ns - self._began_ns) / 1e9)
        if self._live is None:
            elapsed = units.format_seconds(self._now.elapsed_s)
            self._console.print(visible(f"{elapsed:>9} {line_of(run)}"), soft_wrap=True)
        elif not self._paused:
            self._draw()

    def prepare(self, step: str) -> None:
        """Say what is done before there is anything to show."""
        if self._live is not None and self._now.run is None:
            self._live.update(Text(visible(step)), refresh=True)

    def press(self, key: str) -> None:
        """Space holds the picture; s sorts its rows in another way."""
        if key == " ":
            self._paused = not self._paused
        elif key == "s":
            self._now.order = ORDERS[(ORDERS.index(self._now.order) + 1) % len(ORDERS)]
        else:
            return
        self._now.held = self._paused
        self._draw()

    def _draw(self) -> None:
        if self._live is None or self._now.run is None:
            return
        width, height = self._console.size
        self._live.update(
            Text("\n").join(screen_of(self._now, width, max(height, SMALLEST_ROWS))), refresh=True
        )

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()


@dataclass
class Shown:
    """What the screen shows: the last record, and how goodput and shares have been so far."""

    run: Whole | None = None
    elapsed_s: float = 0.0
    duration_s: float | None = None
    order: str = ORDERS[0]
    held: bool = False
    # Whether the terminal has the characters of bars in eight heights.
    blocks: bool = True
    gbps: deque[float | None] = field(default_factory=lambda: deque(maxlen=HISTORY_MAX))
    shares: deque[Mapping[str, float]] = field(default_factory=lambda: deque(maxlen=HISTORY_MAX))

    def add(self, run: Whole, elapsed_s: float) -> None:
        self.run, self.elapsed_s = run, elapsed_s
        self.gbps.append(rates(run).gbps)
        self.shares.append({name: share for name, share, _ in shares(run)})

    def clock(self) -> str:
        """How long it has gone on, and what is left."""
        text = units.format_clock(self.elapsed_s)
        if self.duration_s is not None:
            left = units.format_clock(max(0.0, self.duration_s - self.elapsed_s))
            text += f" of {units.format_clock(self.duration_s)}, {left} left"
        return text + ("  PAUSED (space: resume)" if self.held else "")


class Rates(NamedTuple):
    """Calls per second and goodput; None: no time has passed."""

    sends: float | None
    receives: float | None
    gbps: float | None


def rates(run: Whole) -> Rates:
    """Calls per second and goodput of the window, over the segments of every phase."""
    segments = run.raw.run.segments
    seconds = wall_ns(segments) / 1e9
    if seconds <= 0:
        return Rates(None, None, None)
    return Rates(
        total(segments, "target", "send_calls") / seconds,
        total(segments, "target", "receive_calls") / seconds,
        total(segments, "target", "bytes") * 8 / 1e9 / seconds,
    )


def shares(run: Whole) -> list[tuple[str, float, float | None]]:
    """(account or stage, share, ns/KiB) of the program: copies in their order, then the largest stages."""
    rows = every_row(run)
    found = [
        (name, share, sum(row.ns_per_kib or 0.0 for row in mine) or None)
        for name, mine in grouped(rows, lambda row: row.category).items()
        if (share := sum(row.share or 0.0 for row in mine))
    ]
    return sorted(found, key=lambda one: (position(ACCOUNTS, one[0]), -one[1]))


def line_of(run: Whole) -> str:
    """One second in one line."""
    now = rates(run)
    copies = [
        f"{called(name, watched=True)} {share * 100:.0f} %"
        for name, share, _ in shares(run)
        if name in ACCOUNTS
    ]
    if few := too_few(run):
        copies = [f"{few}: too few for shares"]
    parts = [
        f"{units.format_gbps(now.gbps)}, "
        f"{units.format_count(now.sends)} sends/s, {units.format_count(now.receives)} receives/s",
        ", ".join(copies) or "no copy sampled",
    ]
    if zerocopy := run.derived.zerocopy:
        known = zerocopy.completions is not None
        parts.append(
            f"zero-copy {zerocopy.copied}/{zerocopy.completions} copied" if known else "zero-copy n/a"
        )
    parts += [f"lost {text}"] if (text := lost(run)) != "0" else []
    state = run.derived.machine_state
    return "; ".join([*parts, *([quiet(state)] if state.sentence else [])])


def screen_of(shown: Shown, width: int, height: int) -> list[Text]:
    """The screen: never more lines than the terminal has, never wider."""
    run = shown.run
    assert run is not None
    now, side = rates(run), run.derived.sides.target
    cpus = "n/a" if side is None or side.cpus_used is None else f"{side.cpus_used:.2f}"
    last = run.raw.run.segments[-1].target
    title = f"{run.raw.watched.name}; path: {run.raw.topology.kind}; {shown.clock()}"
    goodput = f"{units.format_gbps(now.gbps):<11}"
    room = max(8, min(HISTORY_MAX, width - LABEL_WIDTH - len(goodput) - 2))
    rows = [
        Text(title, style="bold"),
        _labelled("goodput", f"{goodput} {units.format_history(shown.gbps, room, blocks=shown.blocks)}"),
        _labelled(
            "calls",
            f"{units.format_count(now.sends)} sends/s, {units.format_count(now.receives)} receives/s; "
            f"{units.format_bytes(run.derived.tx_bytes)} sent, "
            f"{units.format_bytes(run.derived.rx_bytes)} received",
        ),
        _labelled("CPU", f"{cpus} CPUs, {last.processes} processes, {last.threads} threads"),
        Text(),
        *_bars(shown, run, width, height),
        Text(),
        *_findings(run),
        Text("q: stop and report   space: pause   s: sort   Ctrl-C: as q", style="dim"),
    ]
    for row in rows:
        row.plain = visible(row.plain)
        row.truncate(width - 1)
    return rows


def _bars(shown: Shown, run: Whole, width: int, height: int) -> list[Text]:
    """A row for each account and stage: its share as a bar, and what it was before."""
    found = shares(run)
    if shown.order == "share":
        found.sort(key=lambda row: -row[1])
    elif shown.order == "name":
        found.sort(key=lambda row: row[0])
    longest = max((share for _, share, _ in found), default=1.0)
    numbers = 39
    bar = max(8, (width - numbers - 3) // 2)
    history = max(0, min(HISTORY_MAX, width - numbers - bar - 4))
    title = f"{'COPIES, THEN STAGES' if shown.order == ORDERS[0] else 'BY ' + shown.order.upper():<20}"
    lines = [Text(f"{title} {'share':>8} {'ns/KiB':>8} {'':<{bar}}  history", style="dim")]
    for name, share, price in found[: max(1, height - FRAME_LINES)]:
        text = f"{called(name, watched=True):<20} "
        text += f"{units.format_percent(share) or '':>8} {units.format_tenths(price) or 'n/a':>8} "
        text += f"{units.format_bar(share, longest, bar):<{bar}}  "
        past = [row.get(name, 0.0) for row in shown.shares]
        text += units.format_history(past, history, blocks=shown.blocks)
        lines.append(Text(text, style="bold" if name in ACCOUNTS else ""))
    if few := too_few(run):
        lines.append(Text(f"of {few}: too few for shares", style="dim"))
    return lines if found else [*lines, Text("not sampled yet", style="dim")]


def _findings(run: Whole) -> list[Text]:
    zerocopy = run.derived.zerocopy
    if zerocopy is None:
        sends = "no send with MSG_ZEROCOPY"
    else:
        cause = f": {zerocopy.cause.sentence}" if zerocopy.cause else ""
        sends = f"completions n/a: {zerocopy.reason}"
        if zerocopy.completions is not None:
            sends = f"{zerocopy.copied:,} of {zerocopy.completions:,} completions were copied{cause}"
    segments = run.raw.run.segments
    phases = {phase: len(select(segments, phase)) for phase in ("unprobed", "ledger", "calls")}
    # How busy the machine was in this window, where that matters; what to do then is in the report.
    state = run.derived.machine_state
    kind = "" if state.disturbance == machine_state.PEER else f"{state.disturbance}: "
    return [
        *([_labelled("machine", f"{kind}{state.evidence}")] if state.evidence else []),
        _labelled("zero-copy", sends),
        _labelled("losses", lost(run)),
        _labelled("segments", ", ".join(f"{count} {phase}" for phase, count in phases.items())),
    ]


def lost(run: Whole) -> str:
    """What the instruments lost, by name."""
    found = {name: entry.count for name, entry in run.derived.loss.items() if entry.count}
    unknown = sum(entry.count is None for entry in run.derived.loss.values())
    text = ", ".join(f"{name} {count:,}" for name, count in found.items()) or "0"
    return f"{text}; {unknown} not counted by this kernel" if unknown else text


def _labelled(label: str, text: str) -> Text:
    line = Text(f"{label:<{LABEL_WIDTH - 1}} {text}")
    line.stylize("bold", 0, len(label))
    return line
