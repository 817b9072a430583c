"""Bytes of a copy without time for it, or time without bytes: rows that exclude each other mark a run."""

import copy
import random
from typing import Any

import builders
import pytest
from builders.encrypted import with_tls
from builders.watched import KINDS, watched_record
from copyscope.ledger.attribution import side_times
from copyscope.ledger.checks import time as identities
from copyscope.ledger.derive import derive, derived
from copyscope.record.measured import Measured
from msgspec import convert

Record = dict[str, Any]


def copy_rows(raw: Record) -> Record:
    """The check, of a record derived afresh."""
    found: Record = next(row for row in derive(raw)["identities"] if row["name"] == "copy_rows")
    return found


def moved(raw: Record, of: str, to: str) -> Record:
    """The samples of one account, in a stage or another account."""
    changed = copy.deepcopy(raw)
    for row in changed["samples"]:
        if row["category"] == of:
            row |= {"category": to, "kind": "account" if to in ("pin", "copy_in", "copy_out") else "stage"}
    return changed


def misnamed(raw: Record, call: str, name: str) -> Record:
    """Calls of one kind counted as those of another."""
    changed = copy.deepcopy(raw)
    for row in changed["volume"]:
        if row["syscall"] == call:
            row |= {"syscall": name, "zerocopy_calls": 0, "zerocopy_bytes": 0}
    return changed


@pytest.mark.parametrize("kind", KINDS)
def test_rows_that_fit_each_other(kind: str) -> None:
    assert copy_rows(watched_record(**KINDS[kind]))["holds"] is True


@pytest.mark.parametrize("impl", ["one_copy", "two_copy", "zero_copy", "sendfile", "null"])
def test_rows_of_our_own_traffic_fit_each_other(impl: str) -> None:
    assert copy_rows(builders.raw_record(impl))["holds"] is True


@pytest.mark.parametrize("options", [{"call": "sendfile"}, {"zerocopy": True, "copied": 100}])
def test_sends_by_reference_that_are_counted_as_copies(options: dict[str, Any]) -> None:
    """As those of 32-bit programs were: "100 % copied", with the time where pages are taken."""
    raw = misnamed(watched_record(**options), options.get("call", "sendmsg"), "write")
    found, verdict = copy_rows(raw), derive(raw)["verdict"]
    assert (found["holds"], found["left"]) == (False, 2)
    assert "copy_in: 1,9" in found["what"] and "pin: no byte, but 150 samples of the target" in found["what"]
    assert not verdict["valid"] and any("copy_rows" in reason for reason in verdict["reasons"])


@pytest.mark.parametrize("account", ["copy_in", "copy_out"])
def test_bytes_without_time(account: str) -> None:
    """2 GB take 20 ms of the fastest core at least; of thousands of samples not one says so."""
    found = copy_rows(moved(builders.raw_record("one_copy"), account, "tcp_ip"))
    assert found["holds"] is False and f"{account}: " in found["what"] and "in at most" in found["what"]


def test_time_without_bytes() -> None:
    """A quarter of its time where pages are taken by reference, and none was sent that way."""
    raw = watched_record(call="write")
    raw["samples"].append(
        raw["samples"][0] | {"category": "pin", "symbol": "skb_splice_from_iter", "samples": 100}
    )
    found = copy_rows(raw)
    assert found["holds"] is False and "pin: no byte, but 100 samples of the target" in found["what"]
    raw["target"]["uncounted"] = ["vsock"]  # it may be theirs
    assert copy_rows(raw)["holds"] is True


@pytest.mark.parametrize("change", [{"context": "softirq"}, {"samples": 1, "weight": 1_000_000}])
def test_time_that_may_be_of_others_is_no_contradiction(change: dict[str, Any]) -> None:
    """Softirq work is for anybody's packets, and one sample is a chance."""
    raw = watched_record(call="write")
    row = raw["samples"][0] | {"category": "pin", "symbol": "skb_splice_from_iter", "samples": 50}
    raw["samples"].append(row | {"weight_squared": 1e12} | change)
    assert copy_rows(raw)["holds"] is True


def test_what_has_no_name_may_have_copied() -> None:
    found = copy_rows(moved(watched_record(call="write"), "copy_in", "unattributed"))
    assert found["holds"] is True


def test_chance_breaks_none() -> None:
    """A core that copies 30 bytes per ns, faster than any, in runs of few samples and of many."""
    draw = random.Random(39)
    raw = watched_record(call="write")
    ledger = derived(convert(raw, Measured), effects=False).ledger
    copied = sum(row.bytes or 0 for row in ledger if row.account == "copy_in")
    for _ in range(500):
        period_ns = draw.choice([1e6, 5e6, 2e7])
        everything = round(600e6 / period_ns)
        hits = sum(draw.random() < copied / 30 / 600e6 for _ in range(everything))
        raw["samples"] = [
            row | {"samples": n, "weight": round(n * period_ns), "weight_squared": float(n * period_ns**2)}
            for row, n in zip(raw["samples"], (hits, everything - hits, 0), strict=True)
        ]
        run = convert(raw, Measured)
        assert identities.copy_rows(run, side_times(run), ledger).holds is True


def test_a_cipher_copies_in_another_way() -> None:
    found = copy_rows(with_tls(builders.raw_record("one_copy")))
    assert found["holds"] is None and "kTLS" in found["reason"]


def test_nothing_is_said_without_samples() -> None:
    raw = watched_record(call="write")
    raw["samples"] = []
    assert copy_rows(raw)["holds"] is None
