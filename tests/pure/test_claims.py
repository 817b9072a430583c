# SPDX-License-Identifier: GPL-2.0-only
"""The check of each published claim returns every verdict that it can return, on invented records."""

import copy
import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from builders import quantiles
from builders.documents import typed_runs
from builders.priced import Prices, priced
from copyscope.report.claim_judge import HOLDS, REFUTED, UNDETERMINED, Judgement, judge_all, judge_one
from copyscope.report.claim_table import CLAIMS as EVERY_CLAIM

Record = dict[str, Any]
Change = Callable[[Record], None]
Case = tuple[str, str, str, Callable[[], list[Record]]]

CHEAP: Prices = {"copies": {"call": 500.0, "byte": 0.1}}
MIDDLE: Prices = {"copies": {"call": 1000.0, "byte": 0.2}}
DEAR: Prices = {"copies": {"call": 2000.0, "byte": 0.4}}
GATHER: Prices = {"gather": {"byte": 0.05}, "copies": {"call": 500.0, "byte": 0.1}}
PINNED: Prices = {"pin": {"call": 300.0}, "deferred": {"byte": 0.15}, "completion": {"call": 200.0}}
SMALL = (64, 256, 1024, 4096)
WIDE = (1024, 4096, 16_384, 65_536, 1_048_576)
COUNTER = {"unit": "1", "status": "measured", "reason": None, "running": 1.0, "parts": None}
NO_PMU = COUNTER | {"value": None, "status": "unsupported", "reason": "not supported: no PMU"}
DEVICE = {"side": "sender", "name": "eth0", "features": {}}
CLAIMS = {claim.id: claim for claim in EVERY_CLAIM}


def runs(
    prices: dict[str, Prices],
    sizes: tuple[int, ...],
    *changes: Change,
    threads: tuple[int, ...] = (1,),
    repeats: int = 3,
) -> list[Record]:
    """Return invented records of each strategy, size and thread count, with little noise.

    changes: functions that change each record
    """
    generator = random.Random(1)
    records = []
    for repeat in range(repeats):
        for count in threads:
            for size in sizes:
                for impl, price in prices.items():
                    slower = math.exp(generator.gauss(0, 0.002))
                    records.append(priced(impl, size, price, threads=count, repeat=repeat, slower=slower))
    for record in records:
        record["workload"] |= {"pages": "4k", "working_set_messages": 16, "touch": False}
        record["workload"] |= {"placement": "split", "nodelay": True}
        record["topology"] |= {"mtu_bytes": 1500, "offloads": {"tso": True}}
        for change in changes:
            change(record)
    return records


def judge(name: str, records: list[Record]) -> Judgement:
    return judge_one(CLAIMS[name], typed_runs(records))


def only_for(impl: str, change: Change) -> Change:
    """Return a change that applies only to records of one strategy."""
    return lambda record: change(record) if record["workload"]["impl"] == impl else None


SAMPLE = {
    "side": "sender",
    "context": "process",
    "event": "cpu-clock",
    "kind": "account",
    "weight": 1.0,
    "weight_squared": 1.0,
}


def sampled(*rows: tuple[str, str, int]) -> Change:
    """Return a change that gives the sender these samples: tuples of category, symbol and count."""

    def change(record: Record) -> None:
        record["samples"] = [{**SAMPLE, "category": c, "symbol": s, "samples": n} for c, s, n in rows]

    return change


def counted(event: str, per_message: dict[str, float], side: str = "sender") -> Change:
    """Return a change that adds a measured counter.

    per_message: strategy -> events per message
    """

    def change(record: Record) -> None:
        value = round(per_message[record["workload"]["impl"]] * 20_000 + record["run"]["repeat"])
        record["counters"][side][event] = COUNTER | {"value": value}

    return change


def uncounted(record: Record) -> None:
    for side in ("sender", "receiver"):
        for event in ("LLC-load-misses", "L1-dcache-load-misses"):
            record["counters"][side][event] = dict(NO_PMU)


def switched(per_message: Callable[[Record], float], side: str = "sender") -> Change:
    def change(record: Record) -> None:
        for segment in record["run"]["segments"]:
            segment["sides"][side]["voluntary_switches"] = (
                round(per_message(record) * 20_000) + record["run"]["repeat"]
            )

    return change


def over(kind: str, driver: str) -> Change:
    def change(record: Record) -> None:
        record["topology"] |= {"kind": kind, "devices": [{**DEVICE, "driver": driver}]}

    return change


def rr(per_thread_us: Callable[[int], float]) -> Change:
    def change(record: Record) -> None:
        record["workload"]["mode"] = "rr"
        time_ns = per_thread_us(record["workload"]["threads"]) * 1000 + record["run"]["repeat"]
        timed = {"round_trip_ns": quantiles(time_ns, 2 * time_ns)}
        sender = record["traffic"]["sender"] | {"histograms": timed}
        record["traffic"] = record["traffic"] | {"sender": sender}

    return change


COPIED_LATE = only_for("zero_copy", sampled(("deferred", "skb_copy_ubufs", 40)))
COPIED_AT_ONCE = only_for("zero_copy", sampled(("copy_in", "_copy_from_iter", 40)))
IN_COPY = sampled(("copy_in", "_copy_from_iter", 30))
STACK = sampled(
    *((("tcp_ip"), f, 4) for f in ("tcp_v4_rcv", "ip_rcv", "tcp_ack", "ip_output", "tcp_write_xmit"))
)
ORDER = {"one_copy": CHEAP, "zero_copy": MIDDLE, "per_field": DEAR}
TWO_WINS = {"two_copy": CHEAP, "zero_copy": DEAR}
# 400 ns more per call equal 0.02 ns less per byte at 20 KB.
CROSSING: dict[str, Prices] = {
    "two_copy": {"gather": {"call": 10.0, "byte": 0.02}, "copies": {"call": 1000.0, "byte": 0.1}},
    "one_copy": {"copies": {"call": 1410.0, "byte": 0.1}},
}
FEW_MISSES = {"zero_copy": 2.0, "one_copy": 5.0, "per_field": 9.0, "two_copy": 7.0}
MANY_MISSES = {"zero_copy": 20.0, "one_copy": 5.0, "per_field": 9.0, "two_copy": 7.0}
KIB, ONE, LARGE = (1024,), (4096,), (16_384,)
GATHERED = {"one_copy": CHEAP, "two_copy": GATHER}
SWAPPED = {"two_copy": CROSSING["one_copy"], "one_copy": CROSSING["two_copy"]}
PLAIN = {"one_copy": CHEAP}
VETH, NIC, LOOPBACK = over("veth", "veth"), over("nics", "mlx5_core"), over("loopback", "lo")
LLC, L1 = "LLC-load-misses", "L1-dcache-load-misses"
THREADS = {"two_copy": CHEAP}


def slow_at_eight(factor: float) -> Change:
    def change(record: Record) -> None:
        if record["workload"]["threads"] == 8:
            record["throughput_gbps"]["unprobed"] *= factor

    return change


def at_eight(more: float) -> Callable[[Record], float]:
    return lambda record: 0.1 * (more if record["workload"]["threads"] == 8 else 1.0)


FEW_SLEEPS = (switched(at_eight(0.3)), switched(at_eight(0.3), "receiver"))


def sleeping(two_copy: float, zero_copy: float) -> Change:
    return switched(lambda record: two_copy if record["workload"]["impl"] == "two_copy" else zero_copy)


def missing(one_copy: float, two_copy: float) -> Change:
    return counted(LLC, {"one_copy": one_copy, "two_copy": two_copy})


def missing_l1(zero_copy: float, two_copy: float) -> Change:
    return counted(L1, {"zero_copy": zero_copy, "two_copy": two_copy}, "receiver")


def both(event: str, table: dict[str, float]) -> tuple[Change, Change]:
    return counted(event, table), counted(event, table, "receiver")


def half_copied(record: Record) -> None:
    for row in record["ledger"]:
        row["bytes"] //= 2


def flushes(pinned: float, plain: float) -> Change:
    return counted("tlb-flushes", {"zero_copy": pinned, "one_copy": plain, "per_field": 0.0})


def no_tracepoint(record: Record) -> None:
    reason = "this kernel has no tracepoint tlb:tlb_flush"
    record["counters"]["sender"]["tlb-flushes"] = NO_PMU | {"reason": reason}


def case(name: str, verdict: str, words: str, *of_runs: Any, **options: Any) -> Case:
    """Return a case: claim, expected verdict, words of the evidence, and a function that makes the records.

    of_runs, options: arguments of runs()
    """
    return name, verdict, words, lambda: runs(*of_runs, **options)


HALF = ({"per_field": CHEAP}, ONE, half_copied)

CASES = [
    case("C1", HOLDS, "8 as claimed", ORDER, SMALL),
    case("C1", REFUTED, "4 the other way", {**ORDER, "one_copy": DEAR, "per_field": DEAR}, SMALL),
    case("C1", UNDETERMINED, "4 undecided", {**ORDER, "zero_copy": CHEAP}, SMALL),
    case("C1", UNDETERMINED, "runs are missing (size 64, 256)", ORDER, SMALL[2:]),
    case("C1", UNDETERMINED, "no interval", ORDER, SMALL, repeats=1),
    case("C2", HOLDS, "one_copy is better above 20", CROSSING, WIDE),
    case("C2", REFUTED, "two_copy is better above", SWAPPED, WIDE),
    case("C2", REFUTED, "two_copy is better at every size", {"two_copy": CHEAP, "one_copy": DEAR}, WIDE),
    case(
        "C2",
        REFUTED,
        "one_copy is better at every size",
        {"two_copy": DEAR, "one_copy": CHEAP},
        WIDE,
    ),
    case("C2", UNDETERMINED, "no difference", {"two_copy": CHEAP, "one_copy": CHEAP}, WIDE),
    case("C2", UNDETERMINED, "from 1 KiB to 4 KiB", CROSSING, WIDE[:2]),
    case("C3", HOLDS, "5 as claimed", TWO_WINS, WIDE),
    case("C3", REFUTED, "5 the other way", {"two_copy": DEAR, "zero_copy": CHEAP}, WIDE),
    case("C3", UNDETERMINED, "size 1048576", TWO_WINS, WIDE[:-1]),
    case("C4", REFUTED, "zero_copy, 0 of 120", {"zero_copy": PINNED}, ONE, COPIED_LATE),
    case("C4", HOLDS, "zero_copy, 120 of 120", {"zero_copy": PINNED}, ONE, COPIED_AT_ONCE),
    case("C4", UNDETERMINED, "within the call: none", {"zero_copy": PINNED}, ONE),
    case("C5", REFUTED, "by DMA (claimed: at least 1.00): per_field, 0 of", {"per_field": CHEAP}, ONE, VETH),
    case("C5", UNDETERMINED, "DMA of mlx5_core is not visible", {"per_field": CHEAP}, ONE, NIC),
    case("C5", REFUTED, "into the socket (claimed: at least 1.00): per_field, 122", *HALF),
    case("C6", HOLDS, "two_copy, 245,760,000 of 245,760,000", {"two_copy": GATHER}, ONE),
    case("C6", REFUTED, "by the program (claimed: at least 1.00): two_copy, 0 of", {"two_copy": CHEAP}, ONE),
    case("C6", UNDETERMINED, "no valid run", PLAIN, ONE),
    case("C7", REFUTED, "one_copy, 90 of 1,500", PLAIN, ONE, IN_COPY),
    case("C7", HOLDS, "one_copy, 0 of 1,500", PLAIN, ONE),
    case("C7", UNDETERMINED, "one_copy, 15 of 1,500", PLAIN, ONE, sampled(("copy_in", "f", 5))),
    case("C8", REFUTED, "zero_copy, 3 of 60,000", ORDER, ONE, flushes(0.0, 0.0)),
    case("C8", HOLDS, "zero_copy, 60,003 of 60,000", ORDER, ONE, flushes(1.0, 0.0)),
    case("C8", UNDETERMINED, "zero_copy, 6,003 of 60,000", ORDER, ONE, flushes(0.1, 0.0)),
    case("C8", UNDETERMINED, "one_copy, 54,003 of 60,000", ORDER, ONE, flushes(1.0, 0.9)),
    case("C8", UNDETERMINED, "no tracepoint", ORDER, ONE, no_tracepoint),
    case("C8", UNDETERMINED, "not counted in these runs", ORDER, ONE),
    case("C9", HOLDS, "zero_copy / two_copy at 1 KiB", TWO_WINS, KIB, sleeping(0.1, 0.2)),
    case("C9", REFUTED, "reads of the error queue per switch", TWO_WINS, KIB, sleeping(0.1, 9.0)),
    case("C9", UNDETERMINED, "reads of the error queue", TWO_WINS, KIB, sleeping(0.1, 1.1)),
    case("C9", REFUTED, "1 thread: 0.50", TWO_WINS, KIB, sleeping(0.2, 0.1)),
    case("C9", UNDETERMINED, "no valid run", TWO_WINS, ONE),
    case("C10", HOLDS, "0.30", GATHERED, ONE, missing(3.0, 10.0)),
    case("C10", REFUTED, "0.80", GATHERED, ONE, missing(8.0, 10.0)),
    case("C10", UNDETERMINED, "no PMU", GATHERED, ONE, uncounted),
    case("C11", HOLDS, "as claimed", ORDER, SMALL, *both(LLC, FEW_MISSES)),
    case("C11", REFUTED, "the other way", ORDER, SMALL, *both(LLC, MANY_MISSES)),
    case("C11", UNDETERMINED, "no PMU", ORDER, SMALL, uncounted),
    case("C12", HOLDS, "0.75", TWO_WINS, KIB, missing_l1(7.5, 10.0)),
    case("C12", REFUTED, "1.20", TWO_WINS, KIB, missing_l1(12.0, 10.0)),
    case("C12", UNDETERMINED, "no PMU", TWO_WINS, KIB, uncounted),
    case("C13", REFUTED, "claimed: at most 0.27", THREADS, LARGE, threads=(4, 8)),
    case(
        "C13", HOLDS, "8 / 4", THREADS, LARGE, slow_at_eight(0.125), switched(at_eight(3.0)), threads=(4, 8)
    ),
    case("C13", REFUTED, "sender", THREADS, LARGE, slow_at_eight(0.125), *FEW_SLEEPS, threads=(4, 8)),
    case("C13", UNDETERMINED, "threads 8", THREADS, LARGE, threads=(4,)),
    case("C14", HOLDS, "4 / 1 at 1 KiB", THREADS, KIB, rr(lambda n: 100 / n), threads=(1, 4)),
    case("C14", REFUTED, "4 / 1 at 1 KiB", THREADS, KIB, rr(lambda n: 100.0 * n), threads=(1, 4)),
    case("C14", UNDETERMINED, "nothing to compare", THREADS, KIB, rr(lambda _: 100.0)),
    case("C14", UNDETERMINED, "run rr", THREADS, KIB, threads=(1, 4)),
    case("C15", REFUTED, "per send call", {**ORDER, "two_copy": GATHER}, ONE),
    case("C15", HOLDS, "per send call", {**ORDER, "two_copy": GATHER}, ONE, switched(lambda _: 8.5)),
    case("C15", UNDETERMINED, "per send call", {"two_copy": GATHER}, ONE, switched(lambda _: 0.7)),
    case("C16", REFUTED, "60 of 60", PLAIN, ONE, LOOPBACK, STACK),
    case("C16", HOLDS, "0 of 270", PLAIN, ONE, LOOPBACK, sampled(("copy_in", "f", 90))),
    case("C16", UNDETERMINED, "0 of 27", PLAIN, ONE, LOOPBACK, sampled(("copy_in", "f", 9))),
    case("C16", UNDETERMINED, "no valid run", PLAIN, ONE),
    case("C17", REFUTED, "0 of 12", PLAIN, ONE, uncounted),
    case("C17", UNDETERMINED, "0 of 3", PLAIN, ONE, counted(LLC, {"one_copy": 3.0})),
    case("C17", HOLDS, "1 of 3", PLAIN, ONE, counted(LLC, {"one_copy": 0.0})),
    case("C17", UNDETERMINED, "readings of zero: none", PLAIN, ONE),
    case("C18", HOLDS, "at every size", {"one_copy": DEAR, "zero_copy": CHEAP}, WIDE, NIC),
    case(
        "C18", REFUTED, "one_copy is better at every size", {"one_copy": CHEAP, "zero_copy": DEAR}, WIDE, NIC
    ),
    case("C18", UNDETERMINED, "no difference", {"one_copy": CHEAP, "zero_copy": CHEAP}, WIDE, NIC),
    case("C18", UNDETERMINED, "no NIC was measured", ORDER, WIDE),
]


@pytest.mark.parametrize(
    ("name", "verdict", "words", "make"),
    CASES,
    ids=[f"{c[0]}-{c[1].split()[0]}-{n}" for n, c in enumerate(CASES)],
)
def test_verdict(name: str, verdict: str, words: str, make: Callable[[], list[Record]]) -> None:
    judgement = judge(name, make())
    assert (judgement.verdict, judgement.claim.id) == (verdict, name), judgement.evidence
    assert words in judgement.evidence


def test_cases_decide_every_claim_and_leave_it_undetermined() -> None:
    """A check that cannot fail proves nothing: the cases of each claim have at least two verdicts."""
    verdicts_of = {name: {verdict for other, verdict, _, _ in CASES if other == name} for name in CLAIMS}
    assert set(verdicts_of) == {f"C{n}" for n in range(1, 19)}
    assert all(UNDETERMINED in verdicts and len(verdicts) >= 2 for verdicts in verdicts_of.values())


def test_each_setting_is_judged_separately_and_one_refutation_decides() -> None:
    good, bad = runs(TWO_WINS, WIDE), runs({"two_copy": DEAR, "zero_copy": CHEAP}, WIDE)
    for record in bad:
        record["run"]["experiment"] = "other"
        record["topology"]["offloads"] = {"tso": False}
    judgement = judge("C3", good + bad)
    assert judgement.verdict == REFUTED
    assert "other: refuted" in judgement.evidence
    assert "priced: holds" in judgement.evidence


def test_one_stray_interval_does_not_refute() -> None:
    """By chance, one of five comparisons points the wrong way in one of eight cases."""
    records = runs(TWO_WINS, WIDE)
    for record in records:
        if record["workload"]["size_bytes"] == 4096 and record["workload"]["impl"] == "zero_copy":
            record["throughput_gbps"]["unprobed"] *= 100
    judgement = judge("C3", records)
    assert judgement.verdict == UNDETERMINED
    assert "1 the other way" in judgement.evidence


def test_invalid_runs_are_no_evidence() -> None:
    records = runs(TWO_WINS, WIDE)
    for record in records:
        record["verdict"] = record["verdict"] | {"valid": False, "reasons": ["too short"]}
    assert judge("C3", records).verdict == UNDETERMINED


def test_judging_all_claims_does_not_change_the_records() -> None:
    records = runs({**ORDER, "two_copy": GATHER}, SMALL, uncounted)
    before = copy.deepcopy(records)
    assert [judgement.claim.id for judgement in judge_all(typed_runs(records))] == [
        f"C{n}" for n in range(1, 19)
    ]
    assert records == before
