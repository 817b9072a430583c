"""Each claim's check, in every verdict that it can return, on records made for it."""

from __future__ import annotations

import copy
import json
import math
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders.priced import Prices, priced
from copyscope.errors import UsageError
from copyscope.study import claims
from copyscope.study.claims import Judgement
from copyscope.study.claims.model import HOLDS, REFUTED, UNDETERMINED

Record = dict[str, Any]
Change = Callable[[Record], None]

CHEAP: Prices = {"copies": {"call": 500.0, "byte": 0.1}}
MIDDLE: Prices = {"copies": {"call": 1000.0, "byte": 0.2}}
DEAR: Prices = {"copies": {"call": 2000.0, "byte": 0.4}}
GATHER: Prices = {"gather": {"byte": 0.05}, "copies": {"call": 500.0, "byte": 0.1}}
PINNED: Prices = {"pin": {"call": 300.0}, "deferred": {"byte": 0.15}, "completion": {"call": 200.0}}
SMALL = (64, 256, 1024, 4096)
WIDE = (1024, 4096, 16_384, 65_536, 1_048_576)
NO_PMU = {"value": None, "unit": "misses", "status": "unsupported", "reason": "not supported: no PMU"}
CLAIMS = {claim.id: claim for claim in claims.read()}


def runs(
    prices: dict[str, Prices],
    sizes: tuple[int, ...],
    *changes: Change,
    threads: tuple[int, ...] = (1,),
    repeats: int = 3,
) -> list[Record]:
    """Three steady runs of each; `changes` are made to every record."""
    generator = random.Random(1)
    made = []
    for repeat in range(repeats):
        for count in threads:
            for size in sizes:
                for impl, price in prices.items():
                    slower = math.exp(generator.gauss(0, 0.002))
                    made.append(priced(impl, size, price, threads=count, repeat=repeat, slower=slower))
    for record in made:
        work = {
            "pages": "4k",
            "working_set_messages": 16,
            "touch": False,
            "placement": "split",
            "nodelay": True,
        }
        record["workload"] |= work
        record["topology"] |= {"mtu_bytes": 1500, "offloads": {"tso": True}}
        record["traffic"] = {"sender": {"histograms": {"round_trip_ns": None}}}
        for change in changes:
            change(record)
    return made


def judge(name: str, records: list[Record]) -> Judgement:
    return claims.judge_one(CLAIMS[name], records)


def of(impl: str, change: Change) -> Change:
    """The change, to records of one strategy only."""
    return lambda record: change(record) if record["workload"]["impl"] == impl else None


def sampled(*rows: tuple[str, str, int], side: str = "sender") -> Change:
    """(category, symbol, samples)."""

    def change(record: Record) -> None:
        record["samples"] = [
            {"side": side, "category": c, "symbol": s, "samples": n, "context": "process"} for c, s, n in rows
        ]

    return change


def counted(event: str, per_message: dict[str, float], side: str = "sender") -> Change:
    """A counter that ran: so many per message, by strategy."""

    def change(record: Record) -> None:
        value = round(per_message[record["workload"]["impl"]] * 20_000 + record["run"]["repeat"])
        record["counters"][side][event] = {"value": value, "status": "measured", "reason": None}

    return change


def uncounted(record: Record) -> None:
    for side in ("sender", "receiver"):
        for event in ("LLC-load-misses", "L1-dcache-load-misses"):
            record["counters"][side][event] = dict(NO_PMU)


def switched(per_message: Callable[[Record], float], side: str = "sender") -> Change:
    def change(record: Record) -> None:
        for segment in record["run"]["segments"]:
            segment[side]["voluntary_switches"] = (
                round(per_message(record) * 20_000) + record["run"]["repeat"]
            )

    return change


def over(kind: str, driver: str) -> Change:
    def change(record: Record) -> None:
        record["topology"] |= {"kind": kind, "devices": [{"side": "sender", "driver": driver}]}

    return change


def impl_of(table: dict[str, float]) -> Callable[[Record], float]:
    return lambda record: table[record["workload"]["impl"]]


def rr(per_thread_us: Callable[[int], float]) -> Change:
    def change(record: Record) -> None:
        record["workload"]["mode"] = "rr"
        time_ns = per_thread_us(record["workload"]["threads"]) * 1000 + record["run"]["repeat"]
        record["traffic"]["sender"]["histograms"]["round_trip_ns"] = {"p50": time_ns, "p99": 2 * time_ns}

    return change


COPIED_LATE = of("zero_copy", sampled(("deferred", "skb_copy_ubufs", 40)))
COPIED_AT_ONCE = of("zero_copy", sampled(("copy_in", "_copy_from_iter", 40)))
IN_COPY = sampled(("copy_in", "_copy_from_iter", 30))
STACK = sampled(
    *((("tcp_ip"), f, 4) for f in ("tcp_v4_rcv", "ip_rcv", "tcp_ack", "ip_output", "tcp_write_xmit"))
)
ORDER = {"one_copy": CHEAP, "zero_copy": MIDDLE, "per_field": DEAR}
TWO_WINS = {"two_copy": CHEAP, "zero_copy": DEAR}
# 400 ns per call against 0.02 ns per byte: at 20 KB
CROSSING: dict[str, Prices] = {
    "two_copy": {"gather": {"call": 10.0, "byte": 0.02}, "copies": {"call": 1000.0, "byte": 0.1}},
    "one_copy": {"copies": {"call": 1410.0, "byte": 0.1}},
}
FEW_MISSES = {"zero_copy": 2.0, "one_copy": 5.0, "per_field": 9.0, "two_copy": 7.0}
MANY_MISSES = {"zero_copy": 20.0, "one_copy": 5.0, "per_field": 9.0, "two_copy": 7.0}
LLC, L1 = "LLC-load-misses", "L1-dcache-load-misses"
THREADS = {"two_copy": CHEAP}


def slow_at_eight(factor: float) -> Change:
    def change(record: Record) -> None:
        if record["workload"]["threads"] == 8:
            record["throughput_gbps"]["unprobed"] *= factor

    return change


def at_eight(more: float) -> Callable[[Record], float]:
    return lambda record: 0.1 * (more if record["workload"]["threads"] == 8 else 1.0)


def both(event: str, table: dict[str, float]) -> tuple[Change, Change]:
    return counted(event, table), counted(event, table, "receiver")


CASES: list[tuple[str, str, str, Callable[[], list[Record]]]] = [
    ("C1", HOLDS, "8 as claimed", lambda: runs(ORDER, SMALL)),
    ("C1", REFUTED, "4 the other way", lambda: runs({**ORDER, "one_copy": DEAR, "per_field": DEAR}, SMALL)),
    ("C1", UNDETERMINED, "without a difference", lambda: runs({**ORDER, "zero_copy": CHEAP}, SMALL)),
    ("C1", UNDETERMINED, "runs are missing (size 64, 256)", lambda: runs(ORDER, SMALL[2:])),
    ("C1", UNDETERMINED, "no interval", lambda: runs(ORDER, SMALL, repeats=1)),
    ("C2", HOLDS, "one_copy is better above", lambda: runs(CROSSING, WIDE)),
    (
        "C2",
        REFUTED,
        "two_copy is better above",
        lambda: runs({"two_copy": CROSSING["one_copy"], "one_copy": CROSSING["two_copy"]}, WIDE),
    ),
    ("C2", REFUTED, "never overtakes", lambda: runs({"two_copy": CHEAP, "one_copy": DEAR}, WIDE)),
    ("C2", UNDETERMINED, "no difference", lambda: runs({"two_copy": CHEAP, "one_copy": CHEAP}, WIDE)),
    ("C2", UNDETERMINED, "from 1 KiB to 4 KiB", lambda: runs(CROSSING, WIDE[:2])),
    ("C3", HOLDS, "5 as claimed", lambda: runs(TWO_WINS, WIDE)),
    ("C3", REFUTED, "5 the other way", lambda: runs({"two_copy": DEAR, "zero_copy": CHEAP}, WIDE)),
    ("C3", UNDETERMINED, "size 1048576", lambda: runs(TWO_WINS, WIDE[:-1])),
    ("C4", REFUTED, "skb_copy_ubufs: 120", lambda: runs({"zero_copy": PINNED}, (4096,), COPIED_LATE)),
    ("C4", HOLDS, "tcp_sendmsg_locked: 120", lambda: runs({"zero_copy": PINNED}, (4096,), COPIED_AT_ONCE)),
    ("C4", REFUTED, "not copied at all", lambda: runs({"zero_copy": CHEAP}, (4096,))),
    ("C4", UNDETERMINED, "too few samples", lambda: runs({"zero_copy": PINNED}, (4096,))),
    ("C5", REFUTED, "veth has no DMA", lambda: runs({"per_field": CHEAP}, (4096,), over("veth", "veth"))),
    (
        "C5",
        UNDETERMINED,
        "not visible",
        lambda: runs({"per_field": CHEAP}, (4096,), over("nics", "mlx5_core")),
    ),
    ("C5", REFUTED, "not even the first", lambda: runs({"per_field": CHEAP}, (4096,), half_copied)),
    ("C6", HOLDS, "gather", lambda: runs({"two_copy": GATHER}, (4096,), IN_COPY, gather_timed)),
    ("C6", REFUTED, "gather 0 B", lambda: runs({"two_copy": CHEAP}, (4096,), IN_COPY, gather_timed)),
    ("C6", UNDETERMINED, "not yet", lambda: runs({"two_copy": GATHER}, (4096,), gather_timed)),
    ("C7", REFUTED, "90 samples in _copy_from_iter", lambda: runs({"one_copy": CHEAP}, (4096,), IN_COPY)),
    ("C7", HOLDS, "none was in the copy", lambda: runs({"one_copy": CHEAP}, (4096,))),
    ("C7", UNDETERMINED, "too few", lambda: runs({"one_copy": CHEAP}, (4096,), sampled(("copy_in", "f", 1)))),
    ("C8", REFUTED, "sends", lambda: runs(ORDER, (4096,), flushes(0.0, 0.0))),
    ("C8", HOLDS, "sends", lambda: runs(ORDER, (4096,), flushes(1.0, 0.0))),
    ("C8", UNDETERMINED, "neither", lambda: runs(ORDER, (4096,), flushes(0.1, 0.0))),
    ("C8", UNDETERMINED, "neither", lambda: runs(ORDER, (4096,), flushes(1.0, 0.9))),
    ("C8", UNDETERMINED, "no tracepoint", lambda: runs(ORDER, (4096,), no_tracepoint)),
    ("C8", UNDETERMINED, "was not counted", lambda: runs(ORDER, (4096,))),
    (
        "C9",
        HOLDS,
        "1 as claimed",
        lambda: runs(TWO_WINS, (1024,), switched(impl_of({"two_copy": 0.1, "zero_copy": 0.2}))),
    ),
    (
        "C9",
        REFUTED,
        "cannot have caused",
        lambda: runs(TWO_WINS, (1024,), switched(impl_of({"two_copy": 0.1, "zero_copy": 9.0}))),
    ),
    (
        "C9",
        UNDETERMINED,
        "reads of the error queue",
        lambda: runs(TWO_WINS, (1024,), switched(impl_of({"two_copy": 0.1, "zero_copy": 1.1}))),
    ),
    (
        "C9",
        REFUTED,
        "1 the other way",
        lambda: runs(TWO_WINS, (1024,), switched(impl_of({"two_copy": 0.2, "zero_copy": 0.1}))),
    ),
    ("C9", UNDETERMINED, "no valid run", lambda: runs(TWO_WINS, (4096,))),
    (
        "C10",
        HOLDS,
        "0.3",
        lambda: runs(
            {"one_copy": CHEAP, "two_copy": GATHER},
            (4096,),
            counted(LLC, {"one_copy": 3.0, "two_copy": 10.0}),
        ),
    ),
    (
        "C10",
        REFUTED,
        "smaller",
        lambda: runs(
            {"one_copy": CHEAP, "two_copy": GATHER},
            (4096,),
            counted(LLC, {"one_copy": 8.0, "two_copy": 10.0}),
        ),
    ),
    (
        "C10",
        UNDETERMINED,
        "no PMU",
        lambda: runs({"one_copy": CHEAP, "two_copy": GATHER}, (4096,), uncounted),
    ),
    ("C11", HOLDS, "as claimed", lambda: runs(ORDER, SMALL, *both(LLC, FEW_MISSES))),
    ("C11", REFUTED, "the other way", lambda: runs(ORDER, SMALL, *both(LLC, MANY_MISSES))),
    ("C11", UNDETERMINED, "no PMU", lambda: runs(ORDER, SMALL, uncounted)),
    (
        "C12",
        HOLDS,
        "0.7",
        lambda: runs(TWO_WINS, (1024,), counted(L1, {"zero_copy": 7.5, "two_copy": 10.0}, "receiver")),
    ),
    (
        "C12",
        REFUTED,
        "smaller",
        lambda: runs(TWO_WINS, (1024,), counted(L1, {"zero_copy": 12.0, "two_copy": 10.0}, "receiver")),
    ),
    ("C12", UNDETERMINED, "no PMU", lambda: runs(TWO_WINS, (1024,), uncounted)),
    ("C13", REFUTED, "0.27", lambda: runs(THREADS, (16_384,), threads=(4, 8))),
    (
        "C13",
        HOLDS,
        "0.27",
        lambda: runs(THREADS, (16_384,), slow_at_eight(0.125), switched(at_eight(3.0)), threads=(4, 8)),
    ),
    (
        "C13",
        REFUTED,
        "it collapses, but",
        lambda: runs(
            THREADS,
            (16_384,),
            slow_at_eight(0.125),
            switched(at_eight(0.3)),
            switched(at_eight(0.3), "receiver"),
            threads=(4, 8),
        ),
    ),
    ("C13", UNDETERMINED, "threads 8", lambda: runs(THREADS, (16_384,), threads=(4,))),
    ("C14", HOLDS, "as claimed", lambda: runs(THREADS, (1024,), rr(lambda n: 100 / n), threads=(1, 4))),
    (
        "C14",
        REFUTED,
        "the other way",
        lambda: runs(THREADS, (1024,), rr(lambda n: 100.0 * n), threads=(1, 4)),
    ),
    ("C14", UNDETERMINED, "only one number", lambda: runs(THREADS, (1024,), rr(lambda _: 100.0))),
    ("C14", UNDETERMINED, "run rr", lambda: runs(THREADS, (1024,), threads=(1, 4))),
    ("C15", REFUTED, "per send call", lambda: runs({**ORDER, "two_copy": GATHER}, (4096,))),
    (
        "C15",
        HOLDS,
        "per send call",
        lambda: runs({**ORDER, "two_copy": GATHER}, (4096,), switched(lambda _: 8.5)),
    ),
    (
        "C15",
        UNDETERMINED,
        "per send call",
        lambda: runs({"two_copy": GATHER}, (4096,), switched(lambda _: 0.7)),
    ),
    ("C16", REFUTED, "tcp_v4_rcv", lambda: runs({"one_copy": CHEAP}, (4096,), over("loopback", "lo"), STACK)),
    (
        "C16",
        HOLDS,
        "none of",
        lambda: runs({"one_copy": CHEAP}, (4096,), over("loopback", "lo"), sampled(("copy_in", "f", 90))),
    ),
    (
        "C16",
        UNDETERMINED,
        "too few",
        lambda: runs({"one_copy": CHEAP}, (4096,), over("loopback", "lo"), sampled(("copy_in", "f", 9))),
    ),
    ("C16", UNDETERMINED, "no valid run", lambda: runs({"one_copy": CHEAP}, (4096,))),
    ("C17", REFUTED, "nothing counts here", lambda: runs({"one_copy": CHEAP}, (4096,), uncounted)),
    (
        "C17",
        REFUTED,
        "the least is",
        lambda: runs({"one_copy": CHEAP}, (4096,), counted(LLC, {"one_copy": 3.0})),
    ),
    (
        "C17",
        HOLDS,
        "1 of them are zero",
        lambda: runs({"one_copy": CHEAP}, (4096,), counted(LLC, {"one_copy": 0.0})),
    ),
    ("C17", UNDETERMINED, "no counter", lambda: runs({"one_copy": CHEAP}, (4096,))),
    (
        "C18",
        HOLDS,
        "at every size",
        lambda: runs({"one_copy": DEAR, "zero_copy": CHEAP}, WIDE, over("nics", "mlx5_core")),
    ),
    (
        "C18",
        REFUTED,
        "never overtakes",
        lambda: runs({"one_copy": CHEAP, "zero_copy": DEAR}, WIDE, over("nics", "mlx5_core")),
    ),
    (
        "C18",
        UNDETERMINED,
        "no difference",
        lambda: runs({"one_copy": CHEAP, "zero_copy": CHEAP}, WIDE, over("nics", "mlx5_core")),
    ),
    ("C18", UNDETERMINED, "no NIC was measured", lambda: runs(ORDER, WIDE)),
]


def gather_timed(record: Record) -> None:
    for segment in record["run"]["segments"]:
        segment["sender"]["gather_timed_ns"] = 1_000_000


def half_copied(record: Record) -> None:
    for row in record["ledger"]:
        row["bytes"] //= 2


def flushes(pinned: float, plain: float) -> Change:
    return counted("tlb-flushes", {"zero_copy": pinned, "one_copy": plain, "per_field": 0.0})


def no_tracepoint(record: Record) -> None:
    reason = "this kernel has no tracepoint tlb:tlb_flush"
    record["counters"]["sender"]["tlb-flushes"] = {"value": None, "status": "unsupported", "reason": reason}


@pytest.mark.parametrize(
    ("name", "verdict", "words", "make"),
    CASES,
    ids=[f"{c[0]}-{c[1].split()[0]}-{n}" for n, c in enumerate(CASES)],
)
def test_verdict(name: str, verdict: str, words: str, make: Callable[[], list[Record]]) -> None:
    found = judge(name, make())
    assert (found.verdict, found.id) == (verdict, name), found.evidence
    assert words in found.evidence
    if found.verdict != UNDETERMINED:
        assert found.rows


def test_every_claim_has_been_seen_undetermined_and_decided() -> None:
    """No check may be one that cannot fail: each returns at least two of the three verdicts above."""
    seen = {name: {verdict for other, verdict, _, _ in CASES if other == name} for name in CLAIMS}
    assert set(seen) == {f"C{n}" for n in range(1, 19)}
    assert all(UNDETERMINED in verdicts and len(verdicts) >= 2 for verdicts in seen.values())
    assert {claim.check for claim in CLAIMS.values()} == set(claims.CHECKS)


def test_settings_are_judged_apart_and_one_of_them_refutes() -> None:
    good, bad = runs(TWO_WINS, WIDE), runs({"two_copy": DEAR, "zero_copy": CHEAP}, WIDE)
    for record in bad:
        record["run"]["experiment"] = "other"
        record["topology"]["offloads"] = {"tso": False}
    found = judge("C3", good + bad)
    assert found.verdict == REFUTED
    assert "other: refuted" in found.evidence
    assert "priced: holds" in found.evidence


def test_one_stray_interval_does_not_refute() -> None:
    """Of five comparisons one on the wrong side happens by chance in one of eight cases."""
    records = runs(TWO_WINS, WIDE)
    for record in records:
        if record["workload"]["size_bytes"] == 4096 and record["workload"]["impl"] == "zero_copy":
            record["throughput_gbps"]["unprobed"] *= 100
    found = judge("C3", records)
    assert found.verdict == UNDETERMINED
    assert "1 the other way" in found.evidence


def test_invalid_runs_are_no_evidence() -> None:
    records = runs(TWO_WINS, WIDE)
    for record in records:
        record["verdict"]["valid"] = False
    assert judge("C3", records).verdict == UNDETERMINED


def test_all_claims_together_are_plain_json_and_touch_nothing() -> None:
    records = runs({**ORDER, "two_copy": GATHER}, SMALL, uncounted)
    before = copy.deepcopy(records)
    found = claims.judge(records)
    assert records == before
    made = claims.as_json(found, records)
    assert json.loads(json.dumps(made, allow_nan=False)) == made
    assert sum(made["tally"].values()) == 18
    assert [row["id"] for row in made["claims"]] == [f"C{n}" for n in range(1, 19)]


GOOD = '[[claim]]\nid = "X"\ntext = "t"\nsources = ["s"]\ncheck = "llc_drop"\nneeds = { size = [1] }\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nonsense", "not TOML"),
        ("", "expected [[claim]]"),
        ("other = 1\n" + GOOD, "nothing else"),
        (GOOD.replace("llc_drop", "nosuch"), "X: check 'nosuch': no such check: one of one_zero"),
        (GOOD.replace("size", "sise"), "X: needs.sise: no such setting: one of impl"),
        (GOOD.replace("[1]", "[]"), "X: needs.size: expected a list of values"),
        (GOOD.replace("text", "txet"), "X: unknown key 'txet'"),
        (GOOD.replace('text = "t"\n', ""), "X: no text"),
        (GOOD.replace('"t"', "3"), "X: text: expected a str"),
        (GOOD + GOOD, "X: comes twice"),
        ("claim = [1]", "claim number 1: not a table"),
    ],
)
def test_a_bad_list_of_claims_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "claims.toml"
    path.write_text(text)
    with pytest.raises(UsageError) as caught:
        claims.read(path)
    assert words in str(caught.value)
    assert str(path) in str(caught.value)
    with pytest.raises(UsageError, match="cannot be read"):
        claims.read(tmp_path / "absent.toml")
