"""The gather copy has a timer and the user time around it is sampled: what chance does to that breaks no run.

Nothing is drawn: for each number of user samples that a run can get the identities are asked once, and the
binomial distribution says how often a run gets it.
"""

import math
from typing import Any

import builders
import pytest
from copyscope.ledger.derive import derive
from hypothesis import given, settings
from hypothesis import strategies as st

Record = dict[str, Any]
RAW = builders.raw_record("two_copy")
TIME = ("sender_rows", "gather_fits")
# once in a thousand is what chance may break (time_identities.VALIDITY_LEVEL)
BY_CHANCE = 0.001


def run_with(samples: int, user: int, gather_share: float) -> Record:
    """A run of which the sender has so many samples, so many of them in user mode, and a timer that says
    which share of its CPU time the gather copy takes."""
    made = {**RAW, "run": {**RAW["run"]}}
    rows = [row for row in RAW["samples"] if row["side"] != "sender"]
    cpu_ns = RAW["counters"]["sender"]["task-clock"]["value"]
    for category, kind, count in (("user", "stage", user), ("copy_in", "account", samples - user)):
        like = next(r for r in RAW["samples"] if r["side"] == "sender" and r["category"] == category)
        weight = count * cpu_ns // samples
        row = {**like, "kind": kind, "samples": count, "weight": weight}
        rows += [{**row, "weight_squared": weight**2 / count}] if count else []
    made["samples"] = rows
    made["run"]["segments"] = [timed(segment, cpu_ns * gather_share) for segment in RAW["run"]["segments"]]
    return made


def timed(segment: Record, gather_ns: float) -> Record:
    """The segment with a timer whose mean over all ledger segments makes `gather_ns`."""
    if segment["phase"] != "ledger":
        return segment
    ledgers = [s for s in RAW["run"]["segments"] if s["phase"] == "ledger"]
    mean_ns = gather_ns / sum(s["sides"]["sender"]["messages"] for s in ledgers)
    sender = segment["sides"]["sender"]
    spent = round(mean_ns * sender["gather_timed_messages"])
    sides = segment["sides"] | {"sender": {**sender, "gather_timed_ns": spent}}
    return segment | {"sides": sides}


def broken(record: Record) -> set[str]:
    return {i["name"] for i in derive(record)["identities"] if i["holds"] is False} & set(TIME)


def chance_of_breaking(samples: int, user_share: float, gather_share: float) -> float:
    """How often such a run breaks one of the two: fewer user samples are worse, so there is one limit."""
    low, high = 0, samples
    while low < high:
        middle = (low + high) // 2
        if broken(run_with(samples, middle, gather_share)):
            low = middle + 1
        else:
            high = middle
    return fewer_than(low, samples, user_share)


def fewer_than(hits: int, trials: int, share: float) -> float:
    """The probability of fewer than `hits` (binomial, by logarithms: trials may be many)."""
    logs = (
        math.lgamma(trials + 1)
        - math.lgamma(k + 1)
        - math.lgamma(trials - k + 1)
        + k * math.log(share)
        + (trials - k) * math.log1p(-share)
        for k in range(hits)
    )
    return sum(map(math.exp, logs))


@pytest.mark.parametrize("samples", [60, 150, 700, 5000])
@pytest.mark.parametrize("share", [0.03, 0.08, 0.3, 0.6])
def test_chance_does_not_break_it(samples: int, share: float) -> None:
    """The worst case: the program does nothing in user mode but the gather copy."""
    assert chance_of_breaking(samples, share, share) < BY_CHANCE


@pytest.mark.parametrize(("samples", "share"), [(150, 0.08), (700, 0.08), (700, 0.3)])
def test_a_fifth_of_the_cpu_time_too_much_breaks_it(samples: int, share: float) -> None:
    assert chance_of_breaking(samples, share, share + 0.2) > 0.99


@pytest.mark.parametrize(("samples", "share"), [(30_000, 0.08), (3_000, 0.3), (1_000, 0.6)])
def test_a_timer_that_says_a_fifth_too_much_breaks_it_once_there_are_samples(
    samples: int, share: float
) -> None:
    assert chance_of_breaking(samples, share, share * 1.2) > 0.9


def test_a_timer_is_compared_with_what_the_sampled_cycles_took() -> None:
    raw = builders.raw_record("two_copy", pmu=True)
    assert broken(raw) == set()
    for segment in raw["run"]["segments"]:
        if segment["phase"] == "ledger":
            segment["sides"]["sender"]["gather_timed_ns"] *= 2
    assert "gather_fits" in broken(raw)


@settings(max_examples=60, deadline=None)
@given(st.integers(100, 2000), st.floats(0.02, 0.7), st.floats(0.0, 1.2))
def test_a_lost_row_is_never_excused(samples: int, share: float, gather: float) -> None:
    """The tolerance is as large as the excess of the timer, at most: a row that is not there still misses."""
    full = derive(run_with(samples, round(samples * share), share * gather))
    found = next(i for i in full["identities"] if i["name"] == "sender_rows")
    excess = max(0, found["left"] - found["right"])
    assert found["tolerance"] <= 0.001 * found["right"] + excess + len(full["stages"])
    gather_ns = next(row["cpu_ns"] for row in full["ledger"] if row["account"] == "gather")
    full["ledger"] = [r for r in full["ledger"] if (r["side"], r["account"]) != ("sender", "copy_in")]
    left = {i.name: i for i in builders.checked_again(full, gather_ns)}
    assert left["sender_rows"].holds is False
