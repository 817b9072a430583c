# SPDX-License-Identifier: GPL-2.0-only
"""Crossovers: invented runs of known costs must cross at the known size, or the answer says why not."""

import json
import math
import random
import re
from dataclasses import replace
from typing import Any

import pytest
from builders.documents import typed_runs
from builders.priced import Prices, pages_touched, priced
from copyscope.base import spelling
from copyscope.base.errors import UsageError
from copyscope.base.stats import Estimate
from copyscope.judge import crossover, crossover_file, crossover_sentences, estimates
from copyscope.judge.crossing import at_size, find_crossing
from copyscope.judge.crossover import Crossover
from copyscope.taxonomy.accounts import ACCOUNTS
from hypothesis import given
from hypothesis import strategies as st
from msgspec import convert, to_builtins

SIZES = (256, 1024, 4096, 16_384, 65_536, 262_144)
SENDER = "sender_cpu_ns_per_kib"
PRICES: dict[str, Prices] = {
    "one_copy": {
        "copies": {"call": 50.0, "byte": 0.08},
        "packets": {"call": 600.0, "byte": 0.02},
        "rest": {"call": 250.0},
    },
    "zero_copy": {
        "pin": {"call": 200.0, "page": 60.0},
        "completion": {"call": 100.0, "notification": 400.0},
        "packets": {"call": 900.0, "byte": 0.02},
        "rest": {"call": 250.0},
    },
}
COPIED: Prices = {**PRICES["zero_copy"], "deferred": {"call": 300.0, "byte": 0.09}}


# The sender's cost is the same: 900 + 0.1 s = 200 + 60 pages + 100 + 100 + 900 + 250 + 0.02 s, and 8 fields
# of s / 8 touch 8 + (s - 8) / 4096 pages on average.
TRUE_SIZE = (650 + 60 * (8 - 8 / 4096)) / (0.08 - 60 / 4096)


def runs(
    prices: dict[str, Prices],
    seed: int = 1,
    *,
    repeats: int = 3,
    noise: float = 0.05,
    sizes: tuple[int, ...] = SIZES,
    threads: int = 1,
) -> list[dict[str, Any]]:
    """Return runs of every strategy at every size. The speed of the machine changes in each repeat."""
    generator = random.Random(seed)
    records = []
    for repeat in range(repeats):
        drift = generator.gauss(0, 0.1) if noise else 0.0
        for size in sizes:
            for impl, price in prices.items():
                slower = math.exp(drift + generator.gauss(0, noise))
                records.append(priced(impl, size, price, threads=threads, repeat=repeat, slower=slower))
    return records


def crossovers(records: list[dict[str, Any]]) -> list[Crossover]:
    return crossover.crossovers_of(typed_runs(records))


def answer(records: list[dict[str, Any]], quantity: str = SENDER) -> Crossover:
    return crossover.crossovers_of(typed_runs(records), (quantity,))[0]


def test_crossover_of_known_costs_is_at_the_known_size() -> None:
    """The size is exact between near sizes. Between distant sizes the interval contains it."""
    near = answer(runs(PRICES, noise=0.0, sizes=(8192, 16_384, 18_000, 32_768)))
    assert (near.verdict, near.above) == ("crosses", "zero_copy")
    assert near.size_bytes == pytest.approx(TRUE_SIZE, rel=0.01)
    assert near.low is not None and near.high is not None and near.high / near.low < 1.05
    for sizes, wide in ((SIZES, 1.05), ((4096, 65_536), 3.0), ((64, 1 << 20), 50.0)):
        far = answer(runs(PRICES, noise=0.0, sizes=sizes))
        assert far.verdict == "crosses" and far.low is not None and far.high is not None
        assert far.low < TRUE_SIZE < far.high
        assert far.high / far.low > wide


@pytest.mark.parametrize(("repeats", "noise"), [(2, 0.05), (3, 0.02), (5, 0.05)])
def test_interval_holds_the_known_size(repeats: int, noise: float) -> None:
    held = intervals = 0
    for seed in range(40):
        crossing = answer(runs(PRICES, seed, repeats=repeats, noise=noise))
        if crossing.low is not None and crossing.high is not None:
            intervals += 1
            held += crossing.low <= TRUE_SIZE <= crossing.high
    assert intervals >= 30
    # 95 %, minus two standard deviations
    assert held >= intervals * 0.95 - 2 * (intervals * 0.95 * 0.05) ** 0.5


def test_every_size_decides_before_a_strategy_is_never_better() -> None:
    """A single size without a difference leaves the verdict open, wherever this size lies."""
    dear = {size: [1.9, 2.0, 2.1] for size in SIZES}
    assert find_crossing(dear, "").verdict == "never"
    assert (
        find_crossing({size: [1 / ratio for ratio in dear[size]] for size in SIZES}, "").verdict == "always"
    )
    for size in SIZES:
        assert find_crossing(dear | {size: [1.2, 0.9, 3.0]}, "").verdict == "undetermined"


def test_a_crossing_needs_a_decision_at_every_size_outside_its_interval() -> None:
    ratios = {size: [1.9, 2.0, 2.1] if size < 16_384 else [0.49, 0.5, 0.51] for size in SIZES}
    assert find_crossing(ratios, "").verdict == "crosses"
    for size in (SIZES[0], SIZES[-1]):
        assert find_crossing(ratios | {size: [0.5, 1.01, 2.0]}, "").verdict == "undetermined"


def test_several_crossings_are_reported_without_a_size() -> None:
    dear = {1024: "zero_copy", 16_384: "one_copy", 262_144: "zero_copy"}
    records = runs({name: {"rest": {"call": 1000.0}} for name in PRICES}, sizes=tuple(dear))
    records = [
        record
        for size, name in dear.items()
        for record in runs(
            {impl: {"rest": {"call": 2000.0 if impl == name else 1000.0}} for impl in PRICES}, sizes=(size,)
        )
    ]
    crossing = answer(records)
    assert (crossing.verdict, crossing.size_bytes, crossing.low) == ("undetermined", None, None)
    assert crossing.evidence == ("one_copy is better at 1 KiB and at 256 KiB; zero_copy is better at 16 KiB")


def within_a_tenth(values: dict[int, float]) -> dict[int, Estimate]:
    return {size: Estimate(value, 0.9 * value, 1.1 * value, 0.95, 3) for size, value in values.items()}


def test_cost_is_interpolated_between_measured_sizes() -> None:
    """The estimate is exact for a pure cost per call. With a cost per byte, the interval contains it."""
    calls = at_size(within_a_tenth({1024: 8.0, 4096: 2.0}), 2048)
    assert calls is not None and calls.value == pytest.approx(4.0)
    mixed = within_a_tenth({size: 5000 / size + 0.2 for size in (1024, 65_536)})
    for size in (2048, 10_000, 40_000):
        ratio = at_size(mixed, size)
        assert ratio is not None and ratio.low is not None and ratio.high is not None
        assert ratio.low < 5000 / size + 0.2 < ratio.high
    assert at_size(mixed, 1024) == mixed[1024]
    # Costs beyond the measured sizes, and costs without measurements, are unknown.
    assert {at_size(mixed, size) for size in (1023, 65_537)} == {None}
    assert at_size({}, 1024) is None
    once = {size: Estimate(1.0, None, None, 0.0, 1) for size in (1024, 4096)}
    assert at_size(once, 2048) == Estimate(1.0, None, None, 0.0, 1)
    # 2 KiB are half way by the logarithm of the size. A cost of zero has no logarithm.
    from_zero = at_size(within_a_tenth({1024: 0.0, 4096: 3.0}), 2048)
    assert from_zero is not None and from_zero.value == pytest.approx(1.5)


@given(st.lists(st.floats(0.01, 1e6), min_size=2, max_size=6, unique=True), st.floats(0, 1))
def test_interpolated_cost_lies_between_the_costs_of_its_neighbours(values: list[float], part: float) -> None:
    measured = within_a_tenth({64 * 4**index: value for index, value in enumerate(values)})
    size = 64 * 4 ** (part * (len(values) - 1))
    ratio = at_size(measured, min(size, max(measured)))
    assert ratio is not None and ratio.low is not None and ratio.high is not None
    assert min(values) * 0.999 <= ratio.value <= max(values) * 1.001
    assert ratio.low <= ratio.value <= ratio.high


def test_costs_exist_for_every_strategy_and_size() -> None:
    (row,) = (
        row
        for row in crossover.costs_of(typed_runs(runs(PRICES, noise=0.0)))
        if (row.impl, row.quantity) == ("one_copy", SENDER)
    )
    for size, cost in row.measured.items():
        assert isinstance(cost, Estimate)
        assert cost.value == pytest.approx((900 + 0.1 * size) / size * 1024)
    assert tuple(row.measured) == SIZES


def test_difference_is_split_by_group_of_work() -> None:
    crossing = answer(runs(PRICES, noise=0.0), "system_cpu_ns_per_kib")
    row = crossing.split[65_536]
    assert row["copies"] == pytest.approx(-(50 + 0.08 * 65_536) / 64, rel=0.01)
    assert row["pin"] == pytest.approx((200 + 60 * 8 * pages_touched(8192)) / 64, rel=0.01)
    assert row["completion"] == pytest.approx(200 / 64, rel=0.01)
    assert row["packets"] == pytest.approx(300 / 64, rel=0.01)
    assert row["rest"] == pytest.approx(0, abs=0.01)
    assert row["sum"] == pytest.approx(sum(row[g] for g in row if g not in ("size_bytes", "sum")), abs=0.01)


def test_zero_copy_never_pays_off_if_the_kernel_copies_anyway() -> None:
    records = runs({**PRICES, "zero_copy": COPIED})
    for record in records:
        if record["workload"]["impl"] == "zero_copy":
            row = {"context": "softirq", "event": "cpu-clock", "kind": "account", "category": "deferred"}
            copies = {
                "side": "sender",
                "symbol": "skb_copy_ubufs",
                "samples": 40,
                "weight": 40.0,
                "weight_squared": 40.0,
            }
            others = {
                "side": "other",
                "symbol": "not_of_this_run",
                "samples": 400,
                "weight": 400.0,
                "weight_squared": 400.0,
            }
            record["samples"] = [row | copies, row | others]
    crossings = crossovers(records)
    at = answer(records)
    assert at.verdict == "never"
    assert (at.size_bytes, at.low, at.high) == (None, None, None)
    text = crossover_sentences.path_sentence(crossings, typed_runs(records))
    assert text.startswith(
        "On this path zero-copy takes more CPU time than one-copy at every size from 256 B to 256 KiB ("
    )
    assert " times at 64 KiB, 95 % interval 1." in text
    assert "1 thread). The kernel copies anyway (skb_copy_ubufs). Goodput: zero-copy has less goodput" in text


def test_crossover_by_goodput_may_differ_from_that_by_cpu_time() -> None:
    records = runs(PRICES)
    for record in records:
        record["throughput_gbps"]["unprobed"] *= 0.05 if record["workload"]["impl"] == "zero_copy" else 1.0
    crossings = crossovers(records)
    # The sentence is about one thread, although a crossover of four threads comes first.
    of_four = [replace(at, threads=4, verdict="always") for at in crossings if at.quantity == "goodput_gbps"]
    text = crossover_sentences.path_sentence([*of_four, *crossings], typed_runs(records))
    assert "zero-copy takes less CPU time than one-copy above 13.8 KiB" in text
    assert "Goodput: zero-copy has less goodput than one-copy at every size from 256 B to 256 KiB" in text
    assert "(CPU time of both sides, 1 thread)." in text
    document = crossover_file.build_document(typed_runs(records), crossovers(records), [])
    for at in (at for row in document.crossovers for at in row.measured):
        assert at.low is not None and at.ratio is not None and at.high is not None
        assert at.low <= at.ratio <= at.high


def test_second_strategy_is_better_at_every_size() -> None:
    cheap: Prices = {"pin": {"call": 100.0}, "packets": {"call": 300.0, "byte": 0.02}}
    crossing = answer(runs({**PRICES, "zero_copy": cheap}))
    assert (crossing.verdict, crossing.size_bytes) == ("always", None)
    assert "takes less CPU time than one-copy at every size" in crossover_sentences.crossover_clause(crossing)


def test_second_strategy_is_better_below_a_size() -> None:
    """A strategy that is cheap per call and expensive per byte is better below the size."""
    dear: Prices = {"copies": {"call": 50.0, "byte": 0.2}, "rest": {"call": 100.0}}
    crossing = answer(runs({**PRICES, "zero_copy": dear}))
    assert (crossing.verdict, crossing.above) == ("crosses", "one_copy")
    assert crossing.size_bytes == pytest.approx(750 / 0.1, rel=0.3)
    assert "takes less CPU time than one-copy below" in crossover_sentences.crossover_clause(crossing)


@pytest.mark.parametrize(
    ("records", "verdict", "level", "words"),
    [
        (
            runs({**PRICES, "zero_copy": PRICES["one_copy"]}, seed=5),
            "undetermined",
            0.95,
            "no difference found",
        ),
        (runs(PRICES, repeats=1), "undetermined", 0.0, "a single repeat has no interval: about 20"),
        (
            runs(PRICES, sizes=(4096,)),
            "undetermined",
            0.0,
            "one_copy is better at 4 KiB; a crossover needs at least two sizes",
        ),
        (
            runs(PRICES, sizes=(256, 1024, 4096)),
            "never",
            0.95,
            "one_copy is better at every size from 256 B to 4 KiB",
        ),
    ],
    ids=["equal costs", "one repeat", "one size", "outside of the sizes"],
)
def test_evidence_explains_a_missing_size(records: list[Any], verdict: str, level: float, words: str) -> None:
    crossing = answer(records)
    assert (crossing.verdict, crossing.level, crossing.low, crossing.high) == (verdict, level, None, None)
    assert words in crossing.evidence


def test_settings_and_threads_are_never_mixed() -> None:
    records = runs(PRICES) + runs(PRICES, threads=4)
    for record in runs(PRICES):
        record["run"]["factors"]["pages"] = "hugetlb"
        records.append(record)
    of_sender = [at for at in crossovers(records) if at.quantity == SENDER]
    assert {(at.threads, at.where.get("pages")) for at in of_sender} == {(1, None), (4, None), (1, "hugetlb")}
    assert len(of_sender) == 3


def test_invalid_runs_are_ignored() -> None:
    records = runs(PRICES)
    spoiled = runs({**PRICES, "zero_copy": COPIED})
    for record in spoiled:
        record["verdict"] = record["verdict"] | {"valid": False, "reasons": ["too short"]}
    assert answer(records + spoiled) == answer(records)
    assert crossovers(spoiled) == []
    assert crossover_sentences.path_sentence([], typed_runs(spoiled)).startswith("undetermined")


def test_answer_does_not_depend_on_the_order_of_records_and_is_plain_json() -> None:
    records = runs(PRICES)
    crossings, of_reversed = crossovers(records), crossovers(list(reversed(records)))
    assert crossings == of_reversed
    document = crossover_file.build_document(
        typed_runs(records), crossings, crossover.costs_of(typed_runs(records))
    )
    text = json.dumps(to_builtins(document), allow_nan=False)
    assert convert(json.loads(text), crossover_file.Document) == document
    assert document.runs == document.valid_runs == len(records)


def received(receiver: str, price: Prices, **others: Any) -> list[dict[str, Any]]:
    """Return runs of one_copy with this way to receive."""
    records = []
    for size in SIZES:
        for repeat in range(3):
            factors = {"impl": "one_copy", "size": size, "threads": 1, "receiver": receiver}
            record = priced("one_copy", size, PRICES["one_copy"], price, repeat=repeat, factors=factors)
            record["workload"] |= {"receiver": receiver, **others}
            records.append(record)
    return records


def test_any_two_values_of_a_setting_are_a_pair() -> None:
    """Mapping costs 900 ns per call and 0.01 ns per byte, reading 0.05 ns per byte: equal at 900 / 0.04."""
    read: Prices = {"copies": {"byte": 0.05}, "rest": {"call": 300.0}}
    maps: Prices = {"mapped": {"call": 900.0, "byte": 0.01}, "rest": {"call": 300.0}}
    records = received("read", read) + received("map", maps)
    for text in ("read,map", "receiver=read,map"):
        by, pair = crossover.read_pair(text, typed_runs(records))
        assert (by, pair) == ("receiver", ("read", "map"))
    answers = crossover.crossovers_of(typed_runs(records), pairs=[pair], by=by)
    at = next(crossing for crossing in answers if crossing.quantity == "receiver_cpu_ns_per_kib")
    assert at.verdict == "crosses" and at.above == "map" and at.where == {"impl": "one_copy"}
    assert at.size_bytes == pytest.approx(900 / 0.04, rel=0.15)
    split = at.split[65_536]
    assert split["mapped"] == pytest.approx((900 + 0.01 * 65_536) / 64, rel=0.02)
    assert split["copies"] == pytest.approx(-0.05 * 1024, rel=0.02)
    row = crossover_file.file_row(at)
    assert (row.pair, row.by) == (["read", "map"], "receiver")
    # Without names, pairs are pairs of strategies, and these records have a single strategy.
    assert crossovers(records) == []


def test_invalid_pair_is_refused_with_advice() -> None:
    records = received("read", {}, tls="1.2") + received("map", {}, tls="1.3")
    for text, says in (
        ("map", "give two different values, for example --pair one_copy,uring_zc"),
        ("read,read", "give two different values"),
        ("one_copy,sendfile", "settings that differ: receiver map, read; tls 1.2, 1.3"),
        ("size=1024,4096", "unknown setting size; choose impl, "),
    ):
        with pytest.raises(UsageError, match=re.escape(says)):
            crossover.read_pair(text, typed_runs(records))
    for record in records:
        record["topology"]["offloads"] = dict.fromkeys(("tso", "gro"), record is records[0])
    with pytest.raises(
        UsageError, match="both tso and gro have these values; use --pair tso=on,off or gro=on,off"
    ):
        crossover.read_pair("on,off", typed_runs(records))


def test_every_account_belongs_to_a_group() -> None:
    """An account without a group would be hidden in `rest`."""
    assert {*ACCOUNTS} <= {name for names in estimates.GROUPS.values() for name in names}


@given(st.lists(st.floats(-1, 1).filter(lambda v: abs(v) > 1e-3), min_size=2, max_size=8))
def test_crossing_lies_between_the_sizes_where_the_sign_changes(values: list[float]) -> None:
    sizes = [64 * 4**index for index in range(len(values))]
    crossing = find_crossing({size: [math.exp(v)] * 3 for size, v in zip(sizes, values, strict=True)}, "any")
    changes = [i for i in range(len(values) - 1) if (values[i] > 0) != (values[i + 1] > 0)]
    if not changes:
        assert crossing.verdict == ("never" if values[0] > 0 else "always")
    elif len(changes) > 1:
        assert (crossing.verdict, crossing.size) == ("undetermined", None)
    else:
        (at,) = changes
        assert crossing.verdict == "crosses" and crossing.rising == (values[at] > 0)
        assert crossing.size is not None and crossing.low is not None and crossing.high is not None
        assert sizes[at] <= crossing.low <= crossing.size <= crossing.high <= sizes[at + 1]


@pytest.mark.parametrize(
    ("size", "text"),
    [(64, "64 B"), (1024, "1 KiB"), (14_541, "14.2 KiB"), (1 << 20, "1 MiB"), (None, "outside")],
)
def test_size_is_formatted_with_at_most_three_digits(size: float | None, text: str) -> None:
    assert spelling.format_size(size) == text
