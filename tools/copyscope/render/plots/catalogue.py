"""The plots of a report, in their order. A plot is a file beside this one and a row here.

Nothing here imports matplotlib: a report's text is made while other processes draw.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Plot:
    """`name`: of the module, and of the files. `alt`: what is seen, for those who do not see it.

    `of`: what the module draws, a field of draw.Subject. `metrics`: where no row has any of them, there is
    nothing to draw.
    """

    name: str
    title: str
    alt: str
    of: str = "rows"
    metrics: tuple[str, ...] = ("system_cpu_ns_per_kib",)


PLOTS = (
    Plot(
        "goodput",
        "Goodput",
        "Goodput (Gb/s) of each strategy along the axis of the experiment, one panel per setting; medians of "
        "runs without instruments, with 95 % intervals.",
        metrics=("goodput_gbps",),
    ),
    Plot(
        "cycles",
        "What a byte costs",
        "Cycles per byte, or CPU time per KiB where no PMU counts cycles: sender, receiver and the system.",
    ),
    Plot(
        "ledger_stack",
        "The copy ledger",
        "CPU time of a delivered KiB as stacked bars, strategy beside strategy: copies in colour, all other "
        "work in grey.",
    ),
    Plot(
        "saved_copy",
        "Where the saved copy went",
        "From the cost of one_copy to that of zero_copy, and from read to map, step by step: the copy that "
        "is saved, and what is paid for it.",
        of="saved",
    ),
    Plot(
        "misses",
        "Cache misses",
        "Load misses per delivered KiB in the first and the last cache level, of sender and receiver.",
        metrics=tuple(
            f"{of}_misses_per_kib_{side}" for of in ("l1d", "llc") for side in ("sender", "receiver")
        ),
    ),
    Plot(
        "message_time",
        "Time per message",
        "Wall time per message and connection, along the number of threads where it was varied. It is an "
        "inverse throughput.",
        metrics=("time_per_message_us",),
    ),
    Plot(
        "latency",
        "Latency",
        "Request to response, median and 99th percentile, along the number of threads where it was varied; "
        "only runs in rr mode have it.",
        metrics=("rtt_p50_us", "rtt_p99_us"),
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
    ),
    Plot(
        "modelled_working_set",
        "Misses by the working set",
        "The same at one size of message, along the memory that the sender goes round in.",
        of="modelled",
    ),
    Plot(
        "modelled_lines",
        "Where the lines of the saved copy went",
        "From the L1D misses of one_copy to those of zero_copy, step by step, over veth and two cards.",
        of="modelled",
    ),
)
