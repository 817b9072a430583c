# SPDX-License-Identifier: GPL-2.0-only
"""Checks of the gather copy, which has a timer inside sampled user time, do not break by chance.

Nothing is drawn at random: the checks run for each number of user samples, and the binomial distribution
gives the probability of each number.
"""

import math
from typing import Any

import builders
import pytest
from builders.documents import derive
from hypothesis import given, settings
from hypothesis import strategies as st

Record = dict[str, Any]
RAW = builders.raw_record("two_copy")
TIME = ("sender_rows", "gather_fits")
# Chance may break a check once in a thousand runs (VALIDITY_LEVEL of ledger/tolerance.py).
BY_CHANCE = 0.001


def run_with(samples: int, user: int, gather_share: float) -> Record:
    """Return a run with this number of sender samples, `user` of them in user mode.

    gather_share: share of the sender's CPU time that the gather copy takes by its timer
    """
    record = {**RAW, "run": {**RAW["run"]}}
    rows = [row for row in RAW["samples"] if row["side"] != "sender"]
    cpu_ns = RAW["counters"]["sender"]["task-clock"]["value"]
    for category, kind, count in (("user", "stage", user), ("copy_in", "account", samples - user)):
        like = next(r for r in RAW["samples"] if r["side"] == "sender" and r["category"] == category)
        weight = count * cpu_ns // samples
        row = {**like, "kind": kind, "samples": count, "weight": weight}
        rows += [{**row, "weight_squared": weight**2 / count}] if count else []
    record["samples"] = rows
    record["run"]["segments"] = [timed(segment, cpu_ns * gather_share) for segment in RAW["run"]["segments"]]
    return record


def timed(segment: Record, gather_ns: float) -> Record:
    """Return a segment with gather times that add up to `gather_ns` over all ledger segments."""
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
    """Return the probability that such a run breaks a check. Fewer user samples are always worse."""
    low, high = 0, samples
    while low < high:
        middle = (low + high) // 2
        if broken(run_with(samples, middle, gather_share)):
            low = middle + 1
        else:
            high = middle
    return fewer_than(low, samples, user_share)


def fewer_than(hits: int, trials: int, share: float) -> float:
    """Return the binomial probability of fewer than `hits`, by logarithms, because `trials` may be large."""
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
def test_chance_breaks_no_check(samples: int, share: float) -> None:
    """The worst case: the gather copy is all that the program does in user mode."""
    assert chance_of_breaking(samples, share, share) < BY_CHANCE


@pytest.mark.parametrize(("samples", "share"), [(150, 0.08), (700, 0.08), (700, 0.3)])
def test_a_timer_that_is_too_long_by_a_fifth_of_the_cpu_time_breaks_a_check(
    samples: int, share: float
) -> None:
    assert chance_of_breaking(samples, share, share + 0.2) > 0.99


@pytest.mark.parametrize(("samples", "share"), [(30_000, 0.08), (3_000, 0.3), (1_000, 0.6)])
def test_a_timer_that_is_a_fifth_too_long_breaks_a_check_with_many_samples(
    samples: int, share: float
) -> None:
    assert chance_of_breaking(samples, share, share * 1.2) > 0.9


def test_the_timer_is_compared_with_the_time_of_sampled_cycles() -> None:
    raw = builders.raw_record("two_copy", pmu=True)
    assert broken(raw) == set()
    for segment in raw["run"]["segments"]:
        if segment["phase"] == "ledger":
            segment["sides"]["sender"]["gather_timed_ns"] *= 2
    assert "gather_fits" in broken(raw)


@settings(max_examples=60, deadline=None)
@given(st.integers(100, 2000), st.floats(0.02, 0.7), st.floats(0.0, 1.2))
def test_a_missing_row_always_breaks_the_sum(samples: int, share: float, gather: float) -> None:
    """The tolerance is at most the excess of the timer."""
    full = derive(run_with(samples, round(samples * share), share * gather))
    check = next(i for i in full["identities"] if i["name"] == "sender_rows")
    excess = max(0, check["left"] - check["right"])
    assert check["tolerance"] <= excess + len(full["stages"]) + len(full["ledger"])
    gather_ns = next(row["cpu_ns"] for row in full["ledger"] if row["account"] == "gather")
    full["ledger"] = [r for r in full["ledger"] if (r["side"], r["account"]) != ("sender", "copy_in")]
    left = {i.name: i for i in builders.checked_again(full, gather_ns)}
    assert left["sender_rows"].holds is False
