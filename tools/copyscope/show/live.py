# SPDX-License-Identifier: GPL-2.0-only
"""Live view of a watched program: a screen of at least 80x24 characters, or lines in a log."""

import sys
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Self, TextIO

from rich.live import Live
from rich.text import Text

from copyscope.base import spelling
from copyscope.base.spelling import visible
from copyscope.base.stats import grouped
from copyscope.ledger import machine_state
from copyscope.ledger.noise import load_text
from copyscope.ledger.share import few_samples
from copyscope.record.run import Run
from copyscope.record.segments import select, target_sum, wall_ns
from copyscope.show.layout import LABEL_WIDTH, SafeConsole, has_screen
from copyscope.show.ledger_rows import every_row, position
from copyscope.taxonomy.accounts import ACCOUNTS, called

# Minimum height of the screen in lines, even if the terminal has fewer lines.
HEIGHT_MIN = 16
# Orders of the rows. The key `s` switches to the next order.
ORDERS = ("path", "share", "name")
# Maximum number of records in the history of goodput and shares.
HISTORY_MAX = 120
# Minimum interval between two updates of the screen. Records can arrive more often.
REFRESH_NS = 900_000_000
# Height of the screen without the rows of bars, in lines.
FRAME_LINES = 13
# Width of the columns to the left of the bars, in characters.
NUMBERS_WIDTH = 39


class LiveView:
    """Context manager that shows each new record of a running watch.

    wanted: False to show nothing
    stream: output; None for stdout
    every_s: interval in seconds at which a line is printed instead of a screen; None to show a screen
    duration_s: duration of the watch in seconds; None if there is no fixed end
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
        self._at_fixed_interval = every_s is not None
        self._interval_ns = REFRESH_NS if every_s is None else round(every_s * 1e9)
        self._began_ns: int | None = None
        self._due_ns = 0
        self._picture = LivePicture(duration_s=duration_s, blocks=self._console.encoding.startswith("utf"))
        self._paused = False

    @property
    def has_keys(self) -> bool:
        """True for a screen, for which keys are passed to press(); False for lines in a log."""
        return self._live is not None

    def is_due(self, now_ns: int) -> bool:
        """Return True if it is time to update the output. The first line of a log comes after one interval.

        now_ns: current time of the monotonic clock
        """
        if not self.wanted:
            return False
        if self._at_fixed_interval and self._began_ns is None:
            self._began_ns, self._due_ns = now_ns, now_ns + self._interval_ns
        is_due = now_ns >= self._due_ns
        if is_due:
            late_ns = (now_ns - self._due_ns) % self._interval_ns if self._at_fixed_interval else 0
            self._due_ns = now_ns - late_ns + self._interval_ns
        return is_due

    def update(self, run: Run) -> None:
        """Show the record of the run so far."""
        if not self.wanted:
            return
        segments = run.raw.run.segments
        if self._began_ns is None:
            self._began_ns = segments[0].begin_ns
        self._picture.add(run, (segments[-1].end_ns - self._began_ns) / 1e9)
        if self._live is None:
            elapsed = spelling.format_seconds(self._picture.elapsed_s)
            self._console.print(visible(f"{elapsed:>9} {log_line(run)}"), soft_wrap=True)
        elif not self._paused:
            self._draw()

    def prepare(self, step: str) -> None:
        """Show a step of the preparation, before the first record exists."""
        if self._live is not None and self._picture.run is None:
            self._live.update(Text(visible(step)), refresh=True)

    def press(self, key: str) -> None:
        """Handle a key: space pauses or resumes, s changes the order of the rows."""
        if key == " ":
            self._paused = not self._paused
        elif key == "s":
            self._picture.order = ORDERS[(ORDERS.index(self._picture.order) + 1) % len(ORDERS)]
        else:
            return
        self._picture.paused = self._paused
        self._draw()

    def _draw(self) -> None:
        if self._live is None or self._picture.run is None:
            return
        width, height = self._console.size
        lines = screen_lines(self._picture, width, max(height, HEIGHT_MIN))
        self._live.update(Text("\n").join(lines), refresh=True)

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()


@dataclass
class LivePicture:
    """Content of the screen: the latest record, and the history of its goodput and shares.

    run: latest record; None if there is no record yet
    elapsed_s: seconds since the first segment began
    duration_s: duration of the watch in seconds; None if there is no fixed end
    order: order of the rows: an element of ORDERS
    paused: True from one press of the space bar to the next
    blocks: True if the terminal can print block characters of eight heights, which the history uses
    gbps: goodput of each record, in Gbit/s
    shares: a mapping for each record: name of an account or stage -> share of the CPU time
    """

    run: Run | None = None
    elapsed_s: float = 0.0
    duration_s: float | None = None
    order: str = ORDERS[0]
    paused: bool = False
    blocks: bool = True
    gbps: deque[float | None] = field(default_factory=lambda: deque(maxlen=HISTORY_MAX))
    shares: deque[Mapping[str, float]] = field(default_factory=lambda: deque(maxlen=HISTORY_MAX))

    def add(self, run: Run, elapsed_s: float) -> None:
        """Show this record from now on, and add its goodput and shares to the history."""
        self.run, self.elapsed_s = run, elapsed_s
        self.gbps.append(rates(run).gbps)
        self.shares.append({row.name: row.share for row in shares(run)})

    def clock(self) -> str:
        """Return the elapsed and the remaining time."""
        text = spelling.format_clock(self.elapsed_s)
        if self.duration_s is not None:
            remaining = spelling.format_clock(max(0.0, self.duration_s - self.elapsed_s))
            text += f" of {spelling.format_clock(self.duration_s)}, {remaining} left"
        return text + ("  PAUSED (space: resume)" if self.paused else "")


class Rates(NamedTuple):
    """Send and receive calls per second, and goodput in Gbit/s; None if no time has passed."""

    sends: float | None
    receives: float | None
    gbps: float | None


class CpuShare(NamedTuple):
    """CPU time of an account or stage: share of all CPU time, and cost in ns/KiB (None: unknown)."""

    name: str
    share: float
    ns_per_kib: float | None


def rates(run: Run) -> Rates:
    """Return a record's calls per second and goodput, over the segments of all phases."""
    segments = run.raw.run.segments
    seconds = wall_ns(segments) / 1e9
    if seconds <= 0:
        return Rates(None, None, None)
    return Rates(
        target_sum(segments, lambda target: target.send_calls) / seconds,
        target_sum(segments, lambda target: target.receive_calls) / seconds,
        target_sum(segments, lambda target: target.bytes) * 8 / 1e9 / seconds,
    )


def shares(run: Run) -> list[CpuShare]:
    """Return the CPU time of each account in the order of the path, then of each stage, the largest first."""
    by_name = [
        CpuShare(name, share, sum(row.ns_per_kib or 0.0 for row in rows) or None)
        for name, rows in grouped(every_row(run), lambda row: row.category).items()
        if (share := sum(row.share or 0.0 for row in rows))
    ]
    return sorted(by_name, key=lambda row: (position((*ACCOUNTS,), row.name), -row.share))


def log_line(run: Run) -> str:
    """Format a record's goodput and shares as a single log line."""
    now = rates(run)
    copies = [
        f"{called(row.name, watched=True)} {row.share * 100:.0f} %"
        for row in shares(run)
        if row.name in ACCOUNTS
    ]
    if few := few_samples(run.raw, run.derived.sides):
        copies = [few]
    parts = [
        f"{spelling.format_gbps(now.gbps)}, "
        f"{spelling.format_count(now.sends)} sends/s, {spelling.format_count(now.receives)} receives/s",
        ", ".join(copies) or "no copy sampled",
    ]
    if (zerocopy := run.derived.zerocopy) and zerocopy.completions is not None:
        parts.append(f"zero-copy {zerocopy.copied}/{zerocopy.completions} copied")
    elif zerocopy:
        parts.append("zero-copy n/a")
    parts += [f"lost {text}"] if (text := losses_text(run)) != "0" else []
    state = run.derived.machine_state
    return "; ".join([*parts, *([load_text(state)] if state.sentence else [])])


def screen_lines(picture: LivePicture, width: int, height: int) -> list[Text]:
    """Return the lines of the screen: at most `height` lines, each shorter than `width` characters."""
    run = picture.run
    assert run is not None
    now, side = rates(run), run.derived.sides.target
    cpus = "n/a" if side is None or side.cpus_used is None else f"{side.cpus_used:.2f}"
    last = run.raw.run.segments[-1].target
    title = f"{run.raw.watched.title}; path: {run.raw.topology.kind}; {picture.clock()}"
    goodput = f"{spelling.format_gbps(now.gbps):<11}"
    room = max(8, min(HISTORY_MAX, width - LABEL_WIDTH - len(goodput) - 2))
    history = spelling.format_history(picture.gbps, room, blocks=picture.blocks)
    lines = [
        Text(title, style="bold"),
        _labelled("goodput", f"{goodput} {history}"),
        _labelled(
            "calls",
            f"{spelling.format_count(now.sends)} sends/s, {spelling.format_count(now.receives)} receives/s; "
            f"{spelling.format_bytes(run.derived.tx_bytes)} sent, "
            f"{spelling.format_bytes(run.derived.rx_bytes)} received",
        ),
        _labelled("CPU", f"{cpus} CPUs, {last.processes} processes, {last.threads} threads"),
        Text(),
        *_bars(picture, run, width, height),
        Text(),
        *_state_lines(run),
        Text("q: stop and report   space: pause   s: sort   Ctrl-C: like q", style="dim"),
    ]
    for line in lines:
        line.plain = visible(line.plain)
        line.truncate(width - 1)
    return lines


def _bars(picture: LivePicture, run: Run, width: int, height: int) -> list[Text]:
    """Return a row for each account and stage: its share as a bar, and the share's history."""
    rows = shares(run)
    if picture.order == "share":
        rows.sort(key=lambda row: -row.share)
    elif picture.order == "name":
        rows.sort(key=lambda row: row.name)
    longest = max((row.share for row in rows), default=1.0)
    bar_width = max(8, (width - NUMBERS_WIDTH - 3) // 2)
    history_width = max(0, min(HISTORY_MAX, width - NUMBERS_WIDTH - bar_width - 4))
    title = "COPIES, THEN STAGES" if picture.order == ORDERS[0] else f"BY {picture.order.upper()}"
    lines = [Text(f"{title:<20} {'share':>8} {'ns/KiB':>8} {'':<{bar_width}}  history", style="dim")]
    for row in rows[: max(1, height - FRAME_LINES)]:
        text = f"{called(row.name, watched=True):<20} "
        text += f"{spelling.format_percent(row.share) or '':>8} "
        text += f"{spelling.format_tenths(row.ns_per_kib) or 'n/a':>8} "
        text += f"{spelling.format_bar(row.share, longest, bar_width):<{bar_width}}  "
        past = [earlier.get(row.name, 0.0) for earlier in picture.shares]
        text += spelling.format_history(past, history_width, blocks=picture.blocks)
        lines.append(Text(text, style="bold" if row.name in ACCOUNTS else ""))
    few = few_samples(run.raw, run.derived.sides)
    return lines if rows else [*lines, Text(few or "not sampled yet", style="dim")]


def _state_lines(run: Run) -> list[Text]:
    """Return the lines below the bars: machine load, zero-copy sends, losses, segments."""
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
    # The screen has no room for the remedy, which is in the final report.
    state = run.derived.machine_state
    kind = "" if state.disturbance == machine_state.PEER else f"{state.disturbance}: "
    return [
        *([_labelled("machine", f"{kind}{state.evidence}")] if state.evidence else []),
        _labelled("zero-copy", sends),
        _labelled("losses", losses_text(run)),
        _labelled("segments", ", ".join(f"{count} {phase}" for phase, count in phases.items())),
    ]


def losses_text(run: Run) -> str:
    """Format the number of events that the instruments lost, by counter."""
    lost = [f"{name} {loss.count:,}" for name, loss in run.derived.loss.items() if loss.count]
    unknown = sum(loss.count is None for loss in run.derived.loss.values())
    text = ", ".join(lost) or "0"
    return f"{text}; {unknown} not counted by this kernel" if unknown else text


def _labelled(label: str, text: str) -> Text:
    line = Text(f"{label:<{LABEL_WIDTH - 1}} {text}")
    line.stylize("bold", 0, len(label))
    return line
