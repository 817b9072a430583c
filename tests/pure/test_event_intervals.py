"""What samples of unequal weight say of a row: the truth lies in the printed interval in 19 of 20 runs."""

import math
import random
from collections import defaultdict
from typing import Any

import pytest
from builders import raw_record
from copyscope.ledger.attribution import Key, Weights
from copyscope.ledger.derive import derive
from copyscope.ledger.rows import SideEvent
from copyscope.taxonomy.events import EVENT_COLUMNS
from hypothesis import given, settings
from hypothesis import strategies as st

RUNS = 3000
# Where 0.95 of them are right, the standard deviation is 0.004: chance alone does not come to five of these.
LEAST = 0.93 * RUNS
ROWS = ("copy_in", "copy_out", "deferred", "tcp_ip")
# A phase of a run: so many events, one of so many a sample, and to which rows they go. A counter that is
# asked for a frequency gives busy phases long periods.
Phase = tuple[int, int, tuple[float, float, float, float]]
PHASES: dict[str, list[Phase]] = {
    "one period": [(1_000_000, 1_000, (0.4, 0.3, 0.2, 0.1))],
    "all rows in all phases": [
        (5_000_000, period, (0.35, 0.3, 0.15, 0.2)) for period in (5_000, 20_000, 80_000, 160_000)
    ],
    # 36 samples that weigh 572,000 each, those of the others 123,000: so it was in an emulated guest.
    "one row has the heavy samples": [
        (20_600_000, 572_000, (0, 0, 1, 0)),
        (60_000_000, 123_000, (0.3, 0.5, 0, 0.2)),
    ],
    "one row has few samples, and heavy ones": [
        (8_000_000, 400_000, (0, 0, 1, 0)),
        (90_000_000, 20_000, (0.5, 0.3, 0, 0.2)),
    ],
}


def key(row: str) -> Key:
    return "account", row, "process"


def poisson(mean: float, generator: random.Random) -> int:
    """How many samples come of so many that are expected; many of them are as good as normal."""
    if mean > 50:
        return max(0, round(generator.gauss(mean, math.sqrt(mean))))
    count, product = 0, generator.random()
    while product > math.exp(-mean):
        product *= generator.random()
        count += 1
    return count


def sampled(phases: list[Phase], generator: random.Random) -> Weights:
    """As many samples as so many events have, where one of `period` is one."""
    samples: dict[Key, int] = defaultdict(int)
    weight: dict[Key, float] = defaultdict(float)
    squared: dict[Key, float] = defaultdict(float)
    for events, period, shares in phases:
        for row, share in zip(ROWS, shares, strict=True):
            if count := poisson(events * share / period, generator):
                samples[key(row)] += count
                weight[key(row)] += count * period
                squared[key(row)] += count * period**2
    return Weights(dict(samples), dict(weight), dict(squared))


@pytest.mark.parametrize("counted", [True, False], ids=["counted", "sampled only"])
@pytest.mark.parametrize("name", PHASES)
def test_the_truth_is_in_19_of_20_intervals(name: str, counted: bool) -> None:
    phases = PHASES[name]
    truth = {row: sum(n * shares[at] for n, _, shares in phases) for at, row in enumerate(ROWS)}
    generator = random.Random(name)
    inside = dict.fromkeys(ROWS, 0)
    for _ in range(RUNS):
        weights = sampled(phases, generator)
        scale = sum(truth.values()) / weights.all_weight if counted else 1.0
        event = SideEvent(weights, scale, None, counted=counted)
        for row in ROWS:
            made = event.estimate(key(row))
            assert made is not None and made[1].low <= made[0] <= made[1].high
            inside[row] += made[1].low <= truth[row] <= made[1].high
    assert {row: count for row, count in inside.items() if count < LEAST} == {}


@settings(max_examples=25, deadline=None)
@given(st.data())
def test_every_estimate_lies_in_its_own_interval(data: st.DataObject) -> None:
    """Time and events of every row, also of those on the time of others, whatever the samples weigh."""
    raw = raw_record("zero_copy", pmu=True)
    for row in raw["samples"]:
        row["samples"] = data.draw(st.integers(1, 300))
        mean = data.draw(st.integers(1, 10**6))
        row["weight"] = row["samples"] * mean
        row["weight_squared"] = row["samples"] * mean**2 * data.draw(st.floats(1, row["samples"]))
    full = derive(raw)
    for row in [*full["ledger"], *full["stages"]]:
        if row["ci"] is not None:
            assert row["ci"]["low_ns"] <= row["cpu_ns"] <= row["ci"]["high_ns"]
        assert set(row["events"]) == {column for column in EVENT_COLUMNS if row[column] is not None}
        for column, known in row["events"].items():
            assert known["low"] <= row[column] <= known["high"] and known["level"] == 0.95


def test_an_event_that_nobody_sampled_on_the_time_of_others_is_few_there() -> None:
    """Cache misses are rare: none among a few samples is no fault."""
    raw = raw_record("zero_copy", pmu=True)
    raw["samples"] = [
        row for row in raw["samples"] if (row["side"], row["event"]) != ("other", "LLC-load-misses")
    ]
    (softirq,) = rows_of(derive(raw), "other")
    assert softirq["llc_misses"] == 0 < softirq["cycles"]
    # At most a handful of samples such as both sides had.
    known, sender = softirq["events"]["llc_misses"], raw["counters"]["sender"]["LLC-load-misses"]["value"]
    assert known["low"] == 0 < known["high"] < sender / 100


def rows_of(record: dict[str, Any], side: str) -> list[dict[str, Any]]:
    return [row for row in [*record["ledger"], *record["stages"]] if row["side"] == side]


def test_the_rows_of_a_side_have_all_that_its_counter_counted() -> None:
    """The samples of each event by themselves; others' time is scaled as that of the sides is."""
    raw = raw_record("zero_copy", pmu=True)
    for side in ("sender", "receiver"):
        raw["counters"][side]["LLC-load-misses"]["value"] *= 2
    full = derive(raw)
    for column, event in (("cycles", "cycles"), ("llc_misses", "LLC-load-misses")):
        for side in ("sender", "receiver"):
            # The gather row of zero_copy is a clock's: it has no events, and no time.
            counts = [row[column] for row in rows_of(full, side) if row.get("account") != "gather"]
            assert sum(counts) == pytest.approx(raw["counters"][side][event]["value"], abs=len(counts))
    (softirq,) = rows_of(full, "other")
    of = {
        side: sum(
            row["weight"]
            for row in raw["samples"]
            if row["side"] == side and row["event"] == "LLC-load-misses"
        )
        for side in ("sender", "receiver", "other")
    }
    counted = sum(raw["counters"][side]["LLC-load-misses"]["value"] for side in ("sender", "receiver"))
    assert softirq["llc_misses"] == round(of["other"] * counted / (of["sender"] + of["receiver"]))


def test_an_interval_is_as_wide_as_the_samples_of_its_row_are_heavy() -> None:
    """Half of the weight by 4 samples of 25, half by 100 of 1: no better known than by 15 equal ones."""
    alike = {key("copy_in"): 100.0, key("copy_out"): 100.0}
    weights = Weights(
        {key("copy_in"): 4, key("copy_out"): 100}, alike, {key("copy_in"): 2500.0, key("copy_out"): 100.0}
    )
    event = SideEvent(weights, 1.0, None)
    _, heavy = event.estimate(key("copy_in")) or (0, None)
    _, light = event.estimate(key("copy_out")) or (0, None)
    assert heavy is not None and light is not None
    # 0.25 / ((0.25 x 2500 + 0.25 x 100) / 200^2) = 15.4; Wilson's interval of 7.7 of 15.4 is 0.277 to 0.723.
    assert (heavy.low, heavy.high) == (light.low, light.high) == (55, 145)
    assert (heavy.samples, light.samples, heavy.method) == (4, 100, "sampled")
