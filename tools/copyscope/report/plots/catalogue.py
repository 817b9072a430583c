# SPDX-License-Identifier: GPL-2.0-only
"""List of all plots in a report, in order, with the colours, markers and hatches that they share.

A plot is drawn as curves of quantities, or by a function of another file in this folder. This file does not
import matplotlib, which is slow to load, so that pages can use the same colours without it.
"""

from dataclasses import dataclass
from typing import Literal

from copyscope.taxonomy.accounts import TABLE, Colour

BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
YELLOW, BLUE, VERMILLION, PURPLE = "#F0E442", "#0072B2", "#D55E00", "#CC79A7"
# Name of a colour in taxonomy/accounts.py -> its hexadecimal value.
PALETTE: dict[Colour, str] = {
    **{"black": BLACK, "orange": ORANGE, "sky": SKY, "green": GREEN},
    **{"yellow": YELLOW, "blue": BLUE, "vermillion": VERMILLION, "purple": PURPLE},
}
OLIVE = "#8C8C00"  # replaces yellow, which is too faint for a line on white
# Colours of text and axes, of secondary text, and of grid lines.
INK, FAINT, GRID = "#222222", "#666666", "#DDDDDD"


@dataclass(frozen=True)
class LineStyle:
    """Style of a strategy's line."""

    colour: str
    marker: str
    dashes: Literal["-", "--", "-.", ":"]


STRATEGY_STYLES = {
    "null": LineStyle(FAINT, "x", ":"),
    "per_field": LineStyle(PURPLE, "v", ":"),
    "two_copy": LineStyle(VERMILLION, "s", "--"),
    "one_copy": LineStyle(BLUE, "o", "-"),
    "zero_copy": LineStyle(GREEN, "^", "-."),
    "sendfile": LineStyle(ORANGE, "D", "-"),
    "uring_send": LineStyle(SKY, "P", "--"),
    "uring_zc": LineStyle(BLACK, "h", ":"),
    "vmsplice": LineStyle(OLIVE, "X", "-."),
    "relay_copy": LineStyle(INK, "*", "-"),
    "relay_splice": LineStyle(INK, "H", "--"),
}
# Styles for strategies that have no style in STRATEGY_STYLES.
SPARE_STYLES = (
    LineStyle(INK, "<", "-"),
    LineStyle(FAINT, ">", "--"),
    LineStyle(INK, "d", ":"),
    LineStyle(FAINT, "p", "-."),
)


def line_style(impl: str, impls: list[str]) -> LineStyle:
    """Return a strategy's style. `impls`: all strategies of the plot, which determine a spare style."""
    return STRATEGY_STYLES.get(impl) or SPARE_STYLES[impls.index(impl) % len(SPARE_STYLES)]


@dataclass(frozen=True)
class Fill:
    """Colour and hatch of an account or stage in a bar."""

    colour: str
    hatch: str


# Account or stage -> fill. Copies have colours. All other work is grey, with different hatches. The greys
# differ in their upper four bits, because the palette of the PNG files (256 colours) merges closer shades.
FILLS = {
    **{account.name: Fill(PALETTE[account.colour], account.hatch) for account in TABLE},
    "syscall": Fill("#4D4D4D", ""),
    "other_packets": Fill("#606060", "--"),
    "skb_alloc": Fill("#B3B3B3", "//"),
    "tcp_ip": Fill("#D9D9D9", ""),
    "device": Fill("#8C8C8C", ""),
    "softirq": Fill("#C6C6C6", "\\\\"),
    "wakeup_sched": Fill("#EDEDED", ".."),
    "lock": Fill("#737373", "xx"),
    "memory": Fill("#A6A6A6", "--"),
    "irq": Fill("#999999", "||"),
    "user": Fill("#FFFFFF", ""),
    "instruments": Fill("#595959", ".."),
    "unattributed": Fill("#FFFFFF", "xx"),
}


@dataclass(frozen=True)
class Quantity:
    """Metric on the vertical axis of a plot.

    label: text at the axis
    panel: name of the metric in panel titles
    """

    metric: str
    label: str
    panel: str = ""


@dataclass(frozen=True)
class Plot:
    """A plot of the report.

    name: name of the plot's files
    title: heading of the picture on the page
    alt: text alternative, for readers who do not see the picture
    subject: the field of draw.PlotSubject to pass to `painter`; unused if there are curves
    painter: function that draws the plot, as `module.function` in this folder
    heading: title inside the figure, if it has curves
    curves: quantities to draw as lines
    along: factor of the horizontal axis, if that factor was varied
    mode: traffic mode of the runs to draw; without such runs, all runs are drawn
    """

    name: str
    title: str
    alt: str
    subject: str = "rows"
    painter: str = "curves.plot"
    heading: str = ""
    curves: tuple[Quantity, ...] = ()
    along: str | None = None
    mode: str | None = None


# Plot of ratios. The page has a picture for each setting, and plots/ has only that of the first setting.
RATIOS = Plot(
    "ratios",
    "Relative to one strategy",
    "Goodput and CPU time of each strategy as ratios to one strategy (the line at 1), along the axis of the "
    "experiment. A band is the 95 % interval of the size at which a strategy becomes better.",
    subject="ratios",
    painter="curves.ratios",
)


def view_name(index: int) -> str:
    """Return the name of a setting's picture of ratios. `index`: index of the setting."""
    return f"{RATIOS.name}-{index + 1}" if index else RATIOS.name


# Plots of a measured experiment, in the order of the page.
PLOTS = (
    Plot(
        "goodput",
        "Goodput",
        "Goodput (Gb/s) of each strategy along the axis of the experiment, one panel per setting: medians of "
        "runs without instruments, with 95 % intervals.",
        heading="Goodput: payload that arrives",
        curves=(Quantity("goodput_gbps", "goodput (Gb/s)"),),
    ),
    RATIOS,
    Plot(
        "cycles",
        "Cost of a byte",
        "Cycles per byte of sender and receiver, and CPU time per KiB of the system. Without a PMU, CPU time "
        "replaces cycles.",
        painter="curves.cycles",
    ),
    Plot(
        "ledger_stack",
        "The copy ledger",
        "CPU time per delivered KiB as stacked bars, one bar per strategy: copies in colour, all other work "
        "in grey.",
        painter="bars.ledger_stack",
    ),
    Plot(
        "misses",
        "Cache misses",
        "Load misses per delivered KiB in the first and the last cache level, for sender and receiver.",
        heading="Cache misses per KiB delivered",
        curves=tuple(
            Quantity(f"{level}_misses_per_kib_{side}", "load misses (1/KiB)", f"{name}, {side}")
            for level, name in (("l1d", "L1D"), ("llc", "LLC"))
            for side in ("sender", "receiver")
        ),
    ),
    Plot(
        "message_time",
        "Time per message",
        "Wall time per message and connection, by the number of threads if that was varied. This time is an "
        "inverse throughput, not a latency.",
        heading="Time per message and connection: an inverse throughput, not a latency",
        curves=(Quantity("time_per_message_us", "time per message (us)"),),
        along="threads",
    ),
    Plot(
        "latency",
        "Latency",
        "Time from request to response, median and 99th percentile, by the number of threads if that was "
        "varied. Only runs with --mode rr measure this time.",
        heading="Latency: request to response (rr mode)",
        curves=(
            Quantity("rtt_p50_us", "round trip (us)", "median"),
            Quantity("rtt_p99_us", "round trip (us)", "99th percentile"),
        ),
        along="threads",
        mode="rr",
    ),
)

# Plots of a simulated experiment, in the order of the page.
MODELLED = (
    Plot(
        "modelled_misses",
        "Misses by message size",
        "Lines per KiB that miss L1D, L2 and the last level, stacked by copy, one bar per strategy. Dashed "
        "lines are cache sizes. Each column of panels is a cache model.",
        subject="modelled",
        painter="bars.misses_by_size",
    ),
    Plot(
        "modelled_working_set",
        "Misses by working set",
        "Lines per KiB that miss each cache level, at one message size, by the working set of the sender.",
        subject="modelled",
        painter="bars.misses_by_working_set",
    ),
    Plot(
        "modelled_lines",
        "Where the lines of the saved copy went",
        "Steps from the L1D misses of one_copy to the L1D misses of zero_copy, over veth and over two network"
        " cards.",
        subject="modelled",
        painter="bars.saved_lines",
    ),
)
