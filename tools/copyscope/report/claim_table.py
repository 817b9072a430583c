# SPDX-License-Identifier: GPL-2.0-only
"""Claims of four published reports, and the runs and figures that show if a claim holds. Pure functions.

A claim about a mechanism is judged by that mechanism (which function copied, how often the TLB was flushed),
not by the difference in speed that the mechanism is meant to explain.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from copyscope.judge.metrics import Scalar

KIB, MIB = 1024, 1 << 20
Pair = tuple[Scalar, Scalar]


@dataclass(frozen=True)
class ClaimCheck:
    """A comparison of metrics with the figure that a report claims.

    how: `ratio`: metric at each pair's first value divided by the metric at its second value, for every size
        and number of threads where both were measured; `count`: events per opportunity, over all runs;
        `crossover`: size at which each pair's second strategy overtakes the first
    comparator, figure: the claim, such as `at least` 1
    holds: bound that the whole interval must meet for the claim to hold; None: the claimed figure
    refuted: bound that the whole interval must miss to refute the claim; None: the claimed figure
    pairs: pairs of values of the setting `by` that are compared
    of: strategy whose runs are counted; None for all strategies
    sizes: message sizes in bytes that are compared; empty: all sizes
    """

    how: Literal["ratio", "count", "crossover"]
    metrics: tuple[str, ...]
    comparator: Literal["at least", "at most"]
    figure: float
    holds: float | None = None
    refuted: float | None = None
    pairs: tuple[Pair, ...] = ()
    by: str = "impl"
    of: str | None = None
    sizes: tuple[int, ...] = ()


@dataclass(frozen=True)
class PublishedClaim:
    """A published claim, and the checks that decide whether it holds.

    sources: reports that make the claim
    needs: setting -> values that the runs must cover
    checks: comparisons that must all hold, in this order
    experiments: names of the experiments that measure these runs
    note: why the claim can hardly be measured, if that is the case
    modelled: checks that a simulated machine can decide
    """

    id: str
    text: str
    sources: tuple[str, ...]
    needs: Mapping[str, tuple[Scalar, ...]]
    checks: tuple[ClaimCheck, ...]
    experiments: tuple[str, ...] = ()
    note: str = ""
    modelled: tuple[ClaimCheck, ...] = field(default=())


# Message sizes in bytes for claims about small messages, and for claims about a wide range of sizes.
SMALL = (64, 256, 1024, 4096)
WIDE = (1024, 4096, 16_384, 65_536, 1_048_576)
# Settings that many claims need, and pairs of strategies that many checks compare.
STREAM = {"mode": ("stream",)}
VETH = {"topology": ("veth",), **STREAM}
ZERO_TWO: Pair = ("zero_copy", "two_copy")
ONE_ZERO: Pair = ("one_copy", "zero_copy")
# Pairs of metrics: one for the sender and one for the receiver.
LLC, L1D, SWITCHES = (
    tuple(f"{name}_{side}" for side in ("sender", "receiver"))
    for name in ("llc_misses_per_kib", "l1d_misses_per_kib", "context_switches_per_message")
)
# Checks that measured runs and simulated machines can both decide.
FLUSHES = ClaimCheck("count", ("tlb flushes per send",), "at least", 1, 0.5, 0.01, of="zero_copy")
NO_FLUSHES = ClaimCheck("count", ("tlb flushes per send",), "at most", 0, 0.5, math.inf, of="one_copy")
LLC_DROP = ClaimCheck(
    "ratio", LLC[:1], "at most", 0.35, holds=1, pairs=(("one_copy", "two_copy"),), sizes=(4096,)
)
L1D_DROP = ClaimCheck("ratio", L1D[1:], "at most", 0.755, holds=1, pairs=(ZERO_TWO,), sizes=(1024,))
FEWEST_LLC = ClaimCheck(
    "ratio",
    LLC,
    "at most",
    1,
    pairs=tuple(("zero_copy", other) for other in ("one_copy", "two_copy", "per_field")),
)
# Check of claim C17, which only measured runs can decide.
ZERO_READINGS = ClaimCheck("count", ("readings of zero",), "at least", 1, 0.0, 0.25)

CLAIMS = (
    PublishedClaim(
        "C1",
        "One-copy beats zero-copy beats per-field send() at every size from 64 B to 4 KiB over veth.",
        ("MT25082",),
        {**VETH, "impl": ("one_copy", "zero_copy", "per_field"), "size": SMALL},
        (
            ClaimCheck(
                "ratio", ("goodput_gbps",), "at least", 1, pairs=(ONE_ZERO, ("zero_copy", "per_field"))
            ),
        ),
        ("published", "mt25082"),
    ),
    PublishedClaim(
        "C2",
        "Two-copy (memcpy and send) beats one-copy below a crossover between 4 and 64 KiB and loses above.",
        ("MT25077", "MT25067"),
        {**VETH, "impl": ("two_copy", "one_copy")},
        (
            ClaimCheck(
                "crossover", ("goodput_gbps",), "at least", 4 * KIB, pairs=(("two_copy", "one_copy"),)
            ),
            ClaimCheck(
                "crossover", ("goodput_gbps",), "at most", 64 * KIB, pairs=(("two_copy", "one_copy"),)
            ),
        ),
        ("published", "crossover", "mt25077"),
    ),
    PublishedClaim(
        "C3",
        "Zero-copy never beats two-copy on veth up to 1 MiB.",
        ("MT25077", "MT25067"),
        {**VETH, "impl": ZERO_TWO, "size": WIDE},
        (ClaimCheck("ratio", ("goodput_gbps",), "at most", 1, pairs=(ZERO_TWO,)),),
        ("published",),
    ),
    PublishedClaim(
        "C4",
        "On veth the kernel falls back to copying in tcp_sendmsg_locked despite MSG_ZEROCOPY.",
        ("MT25067",),
        {"topology": ("veth",), "impl": ("zero_copy",)},
        (
            ClaimCheck(
                "count", ("samples of its copies within the call",), "at least", 1, 0.8, 0.2, of="zero_copy"
            ),
        ),
        ("published", "crossover", "quick"),
    ),
    PublishedClaim(
        "C5",
        "The two copies of a plain send() are user to socket buffer, then socket buffer to NIC by DMA.",
        ("MT25082", "MT25190"),
        {**STREAM, "impl": ("per_field",)},
        (
            ClaimCheck("count", ("bytes copied into the socket",), "at least", 1, 0.99, 0.99, of="per_field"),
            ClaimCheck("count", ("bytes copied by DMA",), "at least", 1, 0.99, 0.99, of="per_field"),
        ),
        ("published", "mt25082"),
    ),
    PublishedClaim(
        "C6",
        "The two copies are the user's serialisation memcpy, then user to socket buffer.",
        ("MT25077", "MT25067"),
        {**STREAM, "impl": ("two_copy",)},
        (
            ClaimCheck("count", ("bytes copied by the program",), "at least", 1, 0.99, 0.99, of="two_copy"),
            ClaimCheck("count", ("bytes copied into the socket",), "at least", 1, 0.99, 0.99, of="two_copy"),
        ),
        ("published", "crossover", "quick"),
    ),
    PublishedClaim(
        "C7",
        "sendmsg() with an iovec lets the NIC read user buffers directly: no copy from user to kernel.",
        ("MT25190",),
        {**STREAM, "impl": ("one_copy",)},
        (
            ClaimCheck(
                "count", ("samples of the sender in that copy",), "at most", 0, 0.01, 0.01, of="one_copy"
            ),
        ),
        ("published", "crossover", "quick"),
    ),
    PublishedClaim(
        "C8",
        "Pinning pages for zero-copy flushes TLB entries.",
        ("MT25082", "MT25067"),
        {**STREAM, "impl": ("zero_copy", "one_copy")},
        (FLUSHES, NO_FLUSHES),
        ("published", "crossover", "quick"),
        modelled=(FLUSHES, NO_FLUSHES),
    ),
    PublishedClaim(
        "C9",
        "Completion handling adds context switches (+69 % at 1 KiB, zero-copy against two-copy).",
        ("MT25077",),
        {**STREAM, "impl": ZERO_TWO, "size": (1024,)},
        (
            ClaimCheck("ratio", SWITCHES[:1], "at least", 1, pairs=(ZERO_TWO,)),
            # A sender that slept until a completion then reads the error queue. So the number of reads of the
            # queue is an upper bound of the context switches that completions caused.
            ClaimCheck(
                "count", ("reads of the error queue per switch",), "at least", 1, 0.5, 0.1, of="zero_copy"
            ),
        ),
        ("published", "mt25077"),
    ),
    PublishedClaim(
        "C10",
        "LLC misses drop by 65 % from two-copy to one-copy at 4 KiB.",
        ("MT25067",),
        {**STREAM, "impl": ("one_copy", "two_copy"), "size": (4096,)},
        (LLC_DROP,),
        ("published", "mt25067"),
        modelled=(LLC_DROP,),
    ),
    PublishedClaim(
        "C11",
        "Zero-copy has the fewest LLC misses at every size.",
        ("MT25082",),
        {**STREAM, "impl": ("per_field", "one_copy", "zero_copy"), "size": SMALL},
        (FEWEST_LLC,),
        ("published", "mt25082"),
        modelled=(FEWEST_LLC,),
    ),
    PublishedClaim(
        "C12",
        "Zero-copy has 24.5 % fewer L1 misses than two-copy at 1 KiB (per run, not per byte).",
        ("MT25077",),
        {**STREAM, "impl": ZERO_TWO, "size": (1024,)},
        (L1D_DROP,),
        ("published", "mt25077"),
        modelled=(L1D_DROP,),
    ),
    PublishedClaim(
        "C13",
        "Throughput collapses by 73 % from 4 to 8 threads because of context switches (two-copy, 16 KiB).",
        ("MT25067",),
        {**STREAM, "impl": ("two_copy",), "size": (16_384,), "threads": (4, 8)},
        (
            ClaimCheck("ratio", ("goodput_gbps",), "at most", 0.27, holds=0.5, pairs=((8, 4),), by="threads"),
            ClaimCheck("ratio", SWITCHES[:1], "at least", 1, pairs=((8, 4),), by="threads"),
        ),
        ("published", "mt25067"),
    ),
    PublishedClaim(
        "C14",
        "Latency falls as threads are added (computed as wall time over messages, an inverse throughput).",
        ("MT25082",),
        {"mode": ("rr",)},
        (ClaimCheck("ratio", ("rtt_p50_us",), "at most", 1, pairs=((2, 1), (4, 1), (8, 1)), by="threads"),),
        ("rr",),
        "latency can only be measured where a response is waited for",
    ),
    PublishedClaim(
        "C15",
        "Every send() costs a context switch.",
        ("MT25082",),
        {**STREAM, "impl": ("per_field", "two_copy", "one_copy", "zero_copy")},
        (ClaimCheck("count", ("context switches per send call",), "at least", 1, 0.9, 0.5),),
        ("published", "quick"),
    ),
    PublishedClaim(
        "C16",
        "Loopback bypasses the network stack.",
        ("MT25067",),
        {"topology": ("loopback",)},
        (ClaimCheck("count", ("samples in tcp_ip, device or softirq",), "at most", 0, 0.05, 0.05),),
        ("paths", "mt25190"),
    ),
    PublishedClaim(
        "C17",
        "A zero LLC or L1 count is a real zero (small working set) rather than an unsupported counter.",
        ("MT25077", "MT25067"),
        STREAM,
        (ZERO_READINGS,),
        ("published", "quick"),
    ),
    PublishedClaim(
        "C18",
        "On a real NIC zero-copy wins from 14 KB, 16 KB or 64 KB on (all of them, by argument only).",
        ("MT25082", "MT25077", "MT25190", "MT25067"),
        {**STREAM, "topology": ("nics",), "impl": ("one_copy", "zero_copy")},
        (ClaimCheck("crossover", ("system_cpu_ns_per_kib",), "at most", 64 * KIB, pairs=(ONE_ZERO,)),),
        note="no NIC was measured (two cabled interfaces: --topology nics:A,B)",
        modelled=(
            ClaimCheck(
                "ratio", L1D[:1], "at most", 1, pairs=(("zero_copy", "one_copy"),), sizes=(64 * KIB, MIB)
            ),
        ),
    ),
)
