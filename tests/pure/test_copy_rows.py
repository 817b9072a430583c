# SPDX-License-Identifier: GPL-2.0-only
"""Copies with bytes but without time, or with time but without bytes, make a run invalid."""

import copy
import random
from typing import Any

import builders
import pytest
from builders.documents import derive
from builders.encrypted import with_tls
from builders.watched import KINDS, watched_record
from copyscope.ledger.attribution import side_times
from copyscope.ledger.checks.time import copy_rows as copy_rows_of
from copyscope.ledger.derive import derived
from copyscope.record.measured import Measured
from msgspec import convert

Record = dict[str, Any]


def copy_rows(raw: Record) -> Record:
    """Return the check `copy_rows` of a record that is derived again."""
    check: Record = next(row for row in derive(raw)["identities"] if row["name"] == "copy_rows")
    return check


def with_category(raw: Record, old_category: str, new_category: str) -> Record:
    """Return the record with the samples of one category given to another."""
    changed = copy.deepcopy(raw)
    for row in changed["samples"]:
        if row["category"] == old_category:
            row |= {
                "category": new_category,
                "kind": "account" if new_category in ("pin", "copy_in", "copy_out") else "stage",
            }
    return changed


def with_syscall(raw: Record, call: str, name: str) -> Record:
    """Return the record with calls of one kind counted as those of another."""
    changed = copy.deepcopy(raw)
    for row in changed["volume"]:
        if row["syscall"] == call:
            row |= {"syscall": name, "zerocopy_calls": 0, "zerocopy_bytes": 0}
    return changed


@pytest.mark.parametrize("kind", KINDS)
def test_bytes_and_time_of_watched_programs_agree(kind: str) -> None:
    assert copy_rows(watched_record(**KINDS[kind]))["holds"] is True


@pytest.mark.parametrize("impl", ["one_copy", "two_copy", "zero_copy", "sendfile", "null"])
def test_bytes_and_time_of_own_traffic_agree(impl: str) -> None:
    assert copy_rows(builders.raw_record(impl))["holds"] is True


@pytest.mark.parametrize("options", [{"call": "sendfile"}, {"zerocopy": True, "copied": 100}])
def test_sends_by_reference_counted_as_copies_are_noticed(options: dict[str, Any]) -> None:
    """Sends of 32-bit programs were once counted so: "100 % copied", with time only in page pinning."""
    raw = with_syscall(watched_record(**options), options.get("call", "sendmsg"), "write")
    check, verdict = copy_rows(raw), derive(raw)["verdict"]
    assert (check["holds"], check["left"]) == (False, 2)
    assert "copy_in: 1,9" in check["what"] and "pin: no bytes, but 150 samples of the target" in check["what"]
    assert not verdict["valid"] and any("copy_rows" in reason for reason in verdict["reasons"])


@pytest.mark.parametrize("account", ["copy_in", "copy_out"])
def test_bytes_without_time(account: str) -> None:
    """2 GB take at least 20 ms on the fastest core, but none of thousands of samples is in the copy."""
    check = copy_rows(with_category(builders.raw_record("one_copy"), account, "tcp_ip"))
    assert check["holds"] is False and f"{account}: " in check["what"] and "in at most" in check["what"]


def test_time_without_bytes() -> None:
    """A quarter of the time is in page pinning, but nothing was sent by reference."""
    raw = watched_record(call="write")
    raw["samples"].append(
        raw["samples"][0] | {"category": "pin", "symbol": "skb_splice_from_iter", "samples": 100}
    )
    check = copy_rows(raw)
    assert check["holds"] is False and "pin: no bytes, but 100 samples of the target" in check["what"]
    raw["target"]["uncounted"] = ["vsock"]  # the time may be of other programs' packets
    assert copy_rows(raw)["holds"] is True


@pytest.mark.parametrize(("samples", "holds"), [(4, True), (5, False)])
def test_five_samples_contradict_a_copy_of_no_byte_at_any_share(samples: int, holds: bool) -> None:
    """All bytes went by reference, but 5 samples of 605, less than 1 %, are in the copy into the kernel."""
    raw = watched_record(call="sendfile")
    copies = {"category": "copy_in", "symbol": "_copy_from_iter", "samples": samples}
    weights = {"weight": samples * 1_000_000, "weight_squared": samples * 1e12}
    raw["samples"].append(raw["samples"][0] | copies | weights)
    check = copy_rows(raw)
    assert check["holds"] is holds
    assert ("copy_in: no bytes, but 5 samples of the target" in check["what"]) is not holds
    assert derive(raw)["verdict"]["valid"] is holds


def test_few_samples_of_a_copy_at_the_other_end_contradict_nothing() -> None:
    """Our receiver copies its answers in. Only the bytes of the sender are counted."""
    raw = builders.raw_record("zero_copy")
    row = next(row for row in raw["samples"] if row["side"] == "receiver")
    copies = {"category": "copy_in", "symbol": "_copy_from_iter", "samples": 5, "context": "process"}
    raw["samples"].append(row | copies | {"kind": "account", "weight": 5 * builders.PERIOD_NS})
    assert copy_rows(raw)["holds"] is True


@pytest.mark.parametrize("change", [{"context": "softirq"}, {"samples": 1, "weight": 1_000_000}])
def test_softirq_work_or_one_sample_contradicts_nothing(change: dict[str, Any]) -> None:
    """Softirq work may be for other programs' packets, and one sample may be chance."""
    raw = watched_record(call="write")
    row = raw["samples"][0] | {"category": "pin", "symbol": "skb_splice_from_iter", "samples": 50}
    raw["samples"].append(row | {"weight_squared": 1e12} | change)
    assert copy_rows(raw)["holds"] is True


def test_time_without_a_name_may_be_a_copy() -> None:
    check = copy_rows(with_category(watched_record(call="write"), "copy_in", "unattributed"))
    assert check["holds"] is True


def test_chance_breaks_no_check() -> None:
    """A core copies 30 bytes per ns, which is faster than any, in runs of few and of many samples."""
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
        assert copy_rows_of(run, side_times(run), ledger).holds is True


def test_ktls_is_not_compared() -> None:
    check = copy_rows(with_tls(builders.raw_record("one_copy")))
    assert check["holds"] is None and "kTLS" in check["reason"]


def test_a_run_without_samples_is_not_compared() -> None:
    raw = watched_record(call="write")
    raw["samples"] = []
    assert copy_rows(raw)["holds"] is None
