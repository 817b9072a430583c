# SPDX-License-Identifier: GPL-2.0-only
"""Each check can fail, and no single wrong number passes all checks."""

import copy
from collections import Counter
from contextlib import suppress
from typing import Any

import builders
import pytest
from builders.documents import derive
from builders.encrypted import with_tls
from builders.relay import as_relay
from copyscope.base.errors import RecordError
from copyscope.ledger.flows import copied_to_relay
from copyscope.record.measured import Measured
from copyscope.record.segments import bytes_received, bytes_sent, select, uncopied_out
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec import convert

Record = dict[str, Any]
Path = tuple[str | int, ...]

IMPLS = ("one_copy", "two_copy", "zero_copy", "per_field", "sendfile", "uring_zc")
RAW = {impl: builders.raw_record(impl) for impl in IMPLS}
RAW |= {how: builders.raw_record("zero_copy", receiver=how) for how in ("map", "splice")}
RAW["tls"] = with_tls(RAW["one_copy"])
RAW["relay"] = as_relay(RAW["one_copy"])
FULL = {impl: derive(raw) for impl, raw in RAW.items()}


def broken(record: Record) -> set[str]:
    """Return the names of checks that do not hold on a record that is derived again."""
    return {i["name"] for i in derive(record)["identities"] if i["holds"] is False}


def at(record: Record, path: Path) -> tuple[Any, str | int]:
    owner: Any = record
    for key in path[:-1]:
        owner = owner[key]
    return owner, path[-1]


def change(record: Record, path: Path, by: int) -> Record:
    changed = copy.deepcopy(record)
    owner, key = at(changed, path)
    owner[key] += by
    return changed


def first_segment(phase: str) -> int:
    return next(i for i, s in enumerate(RAW["one_copy"]["run"]["segments"]) if s["phase"] == phase)


LEDGER, CALLS, BYTES = (first_segment(phase) for phase in ("ledger", "calls", "bytes"))
SEND, RECEIVE, COPY_OUT, REQUESTS = 0, 1, 2, 3  # rows of `bytes`
TAKEN, TO_RELAY = 3, 4  # of a relay


def segment(side: str, *keys: str, index: int = BYTES) -> Path:
    return ("run", "segments", index, "sides", side, *keys)


# Strategy, changed number, difference, and the checks that must fail.
TAMPERED: list[tuple[str, Path, int, set[str]]] = [
    ("one_copy", segment("sender", "bytes"), 1, {"sent_bytes", "delivered"}),
    ("one_copy", segment("sender", "calls"), 1, {"sent_calls"}),
    ("one_copy", segment("sender", "eagain"), 1, {"sent_calls"}),
    ("one_copy", segment("receiver", "bytes"), -1, {"received_bytes", "received_split", "delivered"}),
    ("one_copy", segment("receiver", "calls"), 1, {"received_calls"}),
    ("one_copy", segment("receiver", "truncated_bytes"), 1, {"received_split"}),
    ("one_copy", segment("sender", "bytes", index=LEDGER), 1, {"delivered"}),
    ("one_copy", segment("sender", "bytes", index=CALLS), 1, {"delivered"}),
    ("one_copy", segment("sender", "send_syscalls", "sendmsg", index=CALLS), 1, {"timed_calls"}),
    ("one_copy", ("calls", 0, "calls"), 1, {"timed_calls"}),
    ("one_copy", ("bytes", SEND, "bytes"), 1, {"sent_bytes"}),
    ("one_copy", ("bytes", SEND, "calls"), 1, {"sent_calls"}),
    ("one_copy", ("bytes", RECEIVE, "bytes"), 1, {"received_bytes"}),
    ("one_copy", ("bytes", RECEIVE, "calls"), 1, {"received_calls"}),
    ("one_copy", ("bytes", COPY_OUT, "bytes"), 1, {"received_split"}),
    ("one_copy", ("bytes", SEND, "zerocopy_bytes"), 4096, {"referenced_bytes"}),
    ("one_copy", ("traffic", "sender", "bytes"), 1, {"acked_bytes"}),
    ("one_copy", ("traffic", "sender", "threads", 0, "tcp_info", "bytes_acked"), -1, {"acked_bytes"}),
    ("one_copy", ("counters", "sender", "task-clock", "value"), -100_000_000, {"sender_time"}),
    ("one_copy", ("machine", "cpus_online"), -1, {"within_cpus"}),
    ("one_copy", ("counters", "receiver", "task-clock", "value"), -90_000_000, {"receiver_time"}),
    (
        "two_copy",
        segment("sender", "gather_timed_ns", index=LEDGER),
        20_000_000,
        {"gather_fits", "sender_rows"},
    ),
    ("zero_copy", segment("sender", "zerocopy", "sends"), 1, {"completions", "zerocopy_calls"}),
    ("zero_copy", segment("sender", "zerocopy", "completions"), -1, {"completions"}),
    ("zero_copy", segment("sender", "zerocopy", "bytes_sent"), 1, {"referenced_bytes"}),
    ("zero_copy", segment("sender", "zerocopy", "enobufs"), 1, {"sent_calls"}),
    ("zero_copy", ("bytes", SEND, "zerocopy_bytes"), -1, {"referenced_bytes"}),
    ("zero_copy", ("bytes", SEND, "zerocopy_calls"), -1, {"zerocopy_calls"}),
    ("sendfile", segment("sender", "spliced", "bytes"), 1, {"referenced_bytes"}),
    ("sendfile", ("bytes", SEND, "spliced_bytes"), -4096, {"referenced_bytes"}),
    ("sendfile", ("bytes", SEND, "bytes"), 1, {"sent_bytes"}),
    ("sendfile", segment("sender", "send_syscalls", "sendfile", index=CALLS), 1, {"timed_calls"}),
    ("uring_zc", ("bytes", REQUESTS, "zerocopy_bytes"), -1, {"referenced_bytes"}),
    ("uring_zc", ("bytes", REQUESTS, "calls"), 1, {"sent_calls"}),
    ("uring_zc", ("bytes", SEND, "bytes"), 1, {"sent_bytes"}),
    ("uring_zc", segment("sender", "send_syscalls", "io_uring", index=CALLS), 1, {"timed_calls"}),
    ("map", segment("receiver", "mapped", "bytes"), 4096, {"received_bytes", "received_split"}),
    ("map", segment("receiver", "mapped", "copied_bytes"), -1, {"received_bytes"}),
    ("map", segment("receiver", "mapped", "calls"), 1, {"received_calls"}),
    ("map", ("traffic", "receiver", "threads", 0, "tcp_info", "bytes_received"), 1, {"received_of_tcp"}),
    ("splice", segment("receiver", "spliced", "bytes"), -1, {"received_bytes", "received_split"}),
    ("splice", segment("receiver", "spliced", "calls"), 1, {"received_calls"}),
    ("splice", ("bytes", COPY_OUT, "bytes"), 1, {"received_split"}),
    ("relay", segment("sender", "taken", "bytes"), 1, {"taken_bytes", "taken_split", "relayed_bytes"}),
    ("relay", segment("sender", "taken", "spliced_bytes"), 1, {"taken_bytes", "taken_split"}),
    ("relay", ("bytes", TAKEN, "bytes"), 1, {"taken_bytes"}),
    ("relay", ("bytes", TO_RELAY, "bytes"), 1, {"taken_split"}),
    ("relay", ("bytes", SEND, "bytes"), 1, {"relayed_bytes"}),
    ("tls", ("traffic", "sender", "tls_records"), 1, {"acked_bytes", "received_of_tcp"}),
    (
        "tls",
        ("traffic", "receiver", "threads", 0, "tcp_info", "bytes_received"),
        -1,
        {"received_of_tcp"},
    ),
    ("tls", segment("receiver", "bytes", index=LEDGER), -1, {"delivered"}),
]


@pytest.mark.parametrize(
    ("impl", "path", "by", "names"),
    TAMPERED,
    ids=lambda v: ".".join(map(str, v)) if isinstance(v, tuple) else str(v) if isinstance(v, str) else "",
)
def test_checks_name_the_wrong_number(impl: str, path: Path, by: int, names: set[str]) -> None:
    assert names <= broken(change(RAW[impl], path, by))


def test_each_check_can_fail() -> None:
    """Other tests break attribution by samples and rows by their cells; test_copy_rows.py breaks copies."""
    breakable = set().union(*(names for *_, names in TAMPERED)) | {"sender_attributed", "receiver_attributed"}
    breakable |= {"receiver_rows", "copy_rows"}
    assert {i["name"] for full in FULL.values() for i in full["identities"]} == breakable


@pytest.mark.parametrize("side", ["sender", "receiver"])
def test_much_time_without_a_name_breaks_the_check(side: str) -> None:
    raw = copy.deepcopy(RAW["one_copy"])
    for row in raw["samples"]:
        if row["side"] == side and row["category"] == "tcp_ip":
            row |= {"category": "unattributed", "symbol": "renamed_in_the_next_kernel"}
    assert f"{side}_attributed" in broken(raw)


@pytest.mark.parametrize("category", ["copy_out", "tcp_ip"])
def test_a_missing_row_breaks_the_sum(category: str) -> None:
    """Printed rows are checked, so a row that is dropped or changed afterwards is noticed."""
    full = copy.deepcopy(FULL["one_copy"])
    for section, key in (("ledger", "account"), ("stages", "stage")):
        full[section] = [r for r in full[section] if (r["side"], r[key]) != ("receiver", category)]
    assert "receiver_rows" in {i.name for i in builders.checked_again(full) if i.holds is False}


ROWS = [
    (section, i)
    for section in ("ledger", "stages")
    for i, row in enumerate(FULL["one_copy"][section])
    if row["side"] != "other" and (row["cpu_ns"] or 0) > 1_000
]


@pytest.mark.parametrize("times", [0, 2])
@pytest.mark.parametrize(("section", "index"), ROWS)
def test_a_duplicate_or_missing_row_breaks_the_sum(section: str, index: int, times: int) -> None:
    """Even a small row matters, because only rounding is tolerated."""
    full = copy.deepcopy(FULL["one_copy"])
    row = full[section][index]
    full[section][index : index + 1] = [row] * times
    broken_now = {i.name for i in builders.checked_again(full) if i.holds is False}
    assert f"{row['side']}_rows" in broken_now


def test_lost_samples_break_the_check_against_the_clock() -> None:
    raw = copy.deepcopy(RAW["one_copy"])
    raw["samples"] = [row for row in raw["samples"] if row["category"] != "copy_out"]
    assert "receiver_time" in broken(raw)


def test_a_phase_that_did_not_run_is_unchecked() -> None:
    raw = copy.deepcopy(RAW["one_copy"])
    raw["run"]["segments"] = [s for s in raw["run"]["segments"] if s["phase"] != "calls"]
    checks = {i["name"]: i for i in derive(raw)["identities"]}
    assert checks["timed_calls"]["holds"] is None


@pytest.mark.parametrize(("missed", "holds"), [(2, True), (1, False)])
def test_known_missed_calls_are_tolerated(missed: int, holds: bool) -> None:
    raw = copy.deepcopy(RAW["one_copy"])
    (row,) = (row for row in raw["calls"] if row["side"] == "sender" and row["syscall"] == "sendmsg")
    row["calls"] -= 2
    raw["loss"]["recursion_syscall_exit"] = missed
    check = {i["name"]: i for i in derive(raw)["identities"]}["timed_calls"]
    assert (check["left"] - check["right"], check["holds"], check["tolerance"]) == (2, holds, missed)


def test_receive_calls_of_the_sender_are_not_counted_as_sends() -> None:
    """The sender reads its error queue 500 times."""
    raw = copy.deepcopy(RAW["zero_copy"])
    (row,) = (row for row in raw["calls"] if row["side"] == "sender")
    raw["calls"].append({**row, "syscall": "recvmsg", "calls": 500})
    (check,) = (i for i in derive(raw)["identities"] if i["name"] == "timed_calls")
    sends = sum(s["sides"]["sender"]["calls"] for s in raw["run"]["segments"] if s["phase"] == "calls")
    assert (check["left"], check["right"], check["tolerance"]) == (sends, sends, 0)


def test_copies_out_that_no_hook_counted_have_the_receivers_bytes_and_no_calls() -> None:
    raw = copy.deepcopy(RAW["one_copy"])
    raw["bytes"][COPY_OUT] |= {"bytes": 0, "calls": 0}
    (row,) = (row for row in derive(raw)["ledger"] if row["account"] == "copy_out")
    read = sum(s["sides"]["receiver"]["bytes"] for s in raw["run"]["segments"] if s["phase"] == "ledger")
    assert (row["bytes"], row["bytes_method"], row["calls"]) == (read, "exact", None)
    assert row["reasons"]["calls"] == "nothing was copied out in the segments that count such copies"


def test_sampled_cycles_are_checked_against_their_counter() -> None:
    raw = builders.raw_record("one_copy", pmu=True)
    checks = {i["name"]: i for i in derive(raw)["identities"]}
    assert (checks["sender_time"]["unit"], checks["sender_time"]["holds"]) == ("cycles", True)
    assert "sender_time" in broken(change(raw, ("counters", "sender", "cycles", "value"), 10**9))
    raw["counters"]["sender"]["cycles"] |= {
        "value": None,
        "reason": "multiplexed away",
        "status": "unsupported",
    }
    checks = {i["name"]: i for i in derive(raw)["identities"]}
    assert checks["sender_time"]["holds"] is None


EXACT = [
    (impl, path)
    for impl, path, _, _ in TAMPERED
    if not {"task-clock", "gather_timed_ns", "cpus_online"} & set(path)
]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(EXACT), st.integers(1, 10**9), st.booleans())
def test_any_wrong_count_breaks_a_check(case: tuple[str, Path], size: int, more: bool) -> None:
    impl, path = case
    raw = RAW[impl]
    owner, key = at(raw, path)
    by = size if more else -min(size, owner[key])
    if by == 0:
        return
    with suppress(RecordError):  # an impossible number is refused before anything is derived
        assert broken(change(raw, path, by))


@pytest.mark.parametrize("impl", [impl for impl in RAW if impl != "tls"])
def test_the_rows_account_for_all_bytes_sent_and_received(impl: str) -> None:
    rows = Counter[str]()
    for row in FULL[impl]["ledger"]:
        rows[row["account"]] += row["bytes"] or 0
    segments = select(convert(RAW[impl], Measured).run.segments, "ledger")
    assert rows["copy_in"] + rows["pin"] == bytes_sent(segments)
    received = bytes_received(segments) - uncopied_out(segments)
    assert rows["copy_out"] == received + (copied_to_relay(segments) or 0)
    if FULL[impl]["zerocopy"]:
        never = FULL[impl]["zerocopy"]["bytes_zero_copy"]
        assert rows["pin"] == rows["deferred"] + rows["silent"] + never > 0


CELLS = [
    ("ledger", i, "cpu_ns")
    for i, row in enumerate(FULL["zero_copy"]["ledger"])
    if row["cpu_ns"] and row["side"] != "other" and row["account"] != "completion"
]


@settings(max_examples=40, deadline=None)
@given(st.sampled_from(CELLS), st.floats(0.5, 4))
def test_any_wrong_time_in_the_ledger_breaks_a_check(path: Path, factor: float) -> None:
    """The checks use the rows of the record, not the values that the rows were computed from."""
    full = copy.deepcopy(FULL["zero_copy"])
    owner, key = at(full, path)
    by = max(round(owner[key] * factor), 20_000_000)
    owner[key] += by
    assert any(i.holds is False for i in builders.checked_again(full))


def test_copies_to_a_relay_have_their_own_row() -> None:
    of = {row["side"]: row for row in FULL["relay"]["ledger"] if row["account"] == "copy_out"}
    sent = sum(
        s["sides"]["sender"]["bytes"] for s in RAW["relay"]["run"]["segments"] if s["phase"] == "ledger"
    )
    assert of.keys() == {"sender", "receiver"}
    assert (of["sender"]["bytes"], of["sender"]["calls"]) == (sent, sent // 16_384)
    assert of["receiver"]["bytes"] == sent
    assert broken(RAW["relay"]) == set()
    assert "out of one socket and into the other" in FULL["relay"]["verdict"]["sentence"]


def test_ktls_encrypts_all_bytes_and_pinned_bytes_are_unknown() -> None:
    rows = {row["account"]: row for row in FULL["tls"]["ledger"]}
    ledger = [s for s in RAW["tls"]["run"]["segments"] if s["phase"] == "ledger"]
    sent = sum(s["sides"]["sender"]["bytes"] for s in ledger)
    records = sum(s["sides"]["sender"]["messages"] for s in ledger) * 4
    for account in ("encrypt", "decrypt"):
        assert (rows[account]["bytes"], rows[account]["calls"]) == (sent, records)
    for account in ("copy_in", "pin"):
        assert rows[account]["bytes"] is None and "kTLS" in rows[account]["reasons"]["bytes"]
    assert rows["copy_out"]["bytes"] == 0
    assert broken(RAW["tls"]) == set()
    assert "kTLS 1.3: the cipher takes" in FULL["tls"]["verdict"]["sentence"]


def test_ktls_copies_out_are_scaled_to_the_ledger_segments() -> None:
    raw = copy.deepcopy(RAW["tls"])
    rows = {row["hook"]: row for row in raw["bytes"] if row["side"] == "receiver"}
    rows["copy_out_bytes"] |= {"bytes": rows["receive_bytes"]["bytes"] // 4, "calls": 300}
    (row,) = (row for row in derive(raw)["ledger"] if row["account"] == "copy_out")
    ledger = 635_699_200 + 629_145_600 + 642_252_800
    assert (row["bytes"], row["bytes_method"]) == (ledger // 4, "scaled")
    assert row["calls"] == round(300 * ledger / rows["receive_bytes"]["bytes"])


def test_ktls_with_sendfile_has_no_check_of_references() -> None:
    """No count tells which bytes kTLS pinned, so nothing is compared with them."""
    held = {i["name"]: i["holds"] for i in derive(with_tls(RAW["sendfile"]))["identities"]}
    assert held.pop("copy_rows") is None
    assert set(held.values()) == {True} and held["delivered"]
    assert not {"referenced_bytes", "received_split"} & set(held)


# TCP states (include/net/tcp_states.h). A received FIN adds one byte to bytes_received.
BEFORE_FIN = {1: "ESTABLISHED", 4: "FIN_WAIT1", 5: "FIN_WAIT2"}
AFTER_FIN = {6: "TIME_WAIT", 7: "CLOSE", 8: "CLOSE_WAIT", 9: "LAST_ACK", 11: "CLOSING"}


@pytest.mark.parametrize("state", [*BEFORE_FIN, *AFTER_FIN])
def test_a_received_fin_counts_as_one_byte(state: int) -> None:
    raw = copy.deepcopy(RAW["map"])
    (thread,) = raw["traffic"]["receiver"]["threads"]
    for more in (0, 1):
        thread["tcp_info"] |= {"state": state, "bytes_received": raw["traffic"]["receiver"]["bytes"] + more}
        assert ("received_of_tcp" not in broken(raw)) is (more == (state in AFTER_FIN))


def test_tls_records_are_unknown_after_a_short_send() -> None:
    raw = copy.deepcopy(RAW["tls"])
    for segment_ in raw["run"]["segments"]:
        segment_["sides"]["sender"]["tls_records"] = None
    raw["traffic"]["sender"]["tls_records"] = None
    full = derive(raw)
    checks = {i["name"]: i for i in full["identities"]}
    assert checks["acked_bytes"]["holds"] is None and "short" in checks["acked_bytes"]["reason"]
    for row in full["ledger"]:
        if row["account"] in ("encrypt", "decrypt"):
            assert row["calls"] is None and "short" in row["reasons"]["calls"]
