"""The plots of a report, in their order. A plot is a row here: curves of some quantities, or a file beside.

Nothing here imports matplotlib, which takes long.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Quantity:
    """What is drawn upwards. `of`: the part of the panel titles that says whose it is."""

    metric: str
    label: str
    of: str = ""


@dataclass(frozen=True)
class Plot:
    """`name`: of the files. `alt`: what is seen, for those who do not see it.

    `curves`: drawn by curves.py under `heading`, along the factor `along` where that was varied, of runs in
    `mode` where there are some. Without any, `painter` draws `of`, a field of draw.Subject.
    `painter`: a module beside and its function.
    """

    name: str
    title: str
    alt: str
    of: str = "rows"
    painter: str = "curves.plot"
    heading: str = ""
    curves: tuple[Quantity, ...] = ()
    along: str | None = None
    mode: str | None = None


PLOTS = (
    Plot(
        "goodput",
        "Goodput",
        "Goodput (Gb/s) of each strategy along the axis of the experiment, one panel per setting; medians of "
        "runs without instruments, with 95 % intervals.",
        heading="Goodput: how much payload arrives",
        curves=(Quantity("goodput_gbps", "goodput (Gb/s)"),),
    ),
    Plot(
        "crossover",
        "Crossovers",
        "The ratio of two strategies along the size of a message: goodput and CPU time, with a line at 1; a "
        "band is the 95 % interval of the size from which on the other is better.",
        of="crossings",
        painter="crossover.plot",
    ),
    Plot(
        "cycles",
        "What a byte costs",
        "Cycles per byte, or CPU time per KiB where no PMU counts cycles: sender, receiver and the system.",
        painter="curves.cycles",
    ),
    Plot(
        "ledger_stack",
        "The copy ledger",
        "CPU time of a delivered KiB as stacked bars, strategy beside strategy: copies in colour, all other "
        "work in grey.",
        painter="ledger_stack.plot",
    ),
    Plot(
        "saved_copy",
        "Where the saved copy went",
        "From the cost of one_copy to that of zero_copy, and from read to map, step by step: what the saved "
        "copy gains, and what zero-copy costs instead.",
        of="saved",
        painter="saved_copy.plot",
    ),
    Plot(
        "misses",
        "Cache misses",
        "Load misses per delivered KiB in the first and the last cache level, of sender and receiver.",
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
        "Wall time per message and connection, by the number of threads where that was varied. It is an "
        "inverse throughput, not a latency.",
        heading="Time per message and connection: an inverse throughput, not a latency",
        curves=(Quantity("time_per_message_us", "time per message (us)"),),
        along="threads",
    ),
    Plot(
        "latency",
        "Latency",
        "Request to response, median and 99th percentile, by the number of threads where that was varied; "
        "only runs in rr mode have it.",
        heading="Latency: request to response (rr mode)",
        curves=(
            Quantity("rtt_p50_us", "round trip (us)", "median"),
            Quantity("rtt_p99_us", "round trip (us)", "99th percentile"),
        ),
        along="threads",
        mode="rr",
    ),
)

# Of a simulated experiment, instead of those above.
MODELLED = (
    Plot(
        "modelled_misses",
        "Misses by the size of a message",
        "Lines per KiB that miss L1D, L2 and the last level, stacked by copy, strategy beside strategy; "
        "cache sizes are dashed lines; a column for each model.",
        of="modelled",
        painter="modelled.by_size",
    ),
    Plot(
        "modelled_working_set",
        "Misses by the working set",
        "The same at one size of message, by the working set of the sender.",
        of="modelled",
        painter="modelled.by_working_set",
    ),
    Plot(
        "modelled_lines",
        "Where the lines of the saved copy went",
        "From the L1D misses of one_copy to those of zero_copy, step by step, over veth and two cards.",
        of="modelled",
        painter="modelled.lines",
    ),
)
