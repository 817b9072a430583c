"""Each identity can fail, and no single wrong number gets past all of them."""

import copy
from collections import Counter
from contextlib import suppress
from typing import Any

import builders
import pytest
from builders.encrypted import with_tls
from builders.relay import as_relay
from copyscope.ledger.derive import derive
from copyscope.ledger.flows import copied_to_relay
from copyscope.record.measured import Measured
from copyscope.record.segments import select, total, uncopied_out
from copyscope.record.store import RecordError
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
    """Identities that do not hold on a record derived afresh."""
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


# what is changed by how much -> the identities that must say so
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
def test_names_what_was_tampered_with(impl: str, path: Path, by: int, names: set[str]) -> None:
    assert names <= broken(change(RAW[impl], path, by))


def test_no_identity_is_without_a_number_that_breaks_it() -> None:
    """A check that cannot fail is a defect; attribution is broken by samples below, rows by their cells,
    those of copies in test_copy_rows.py."""
    breakable = set().union(*(names for *_, names in TAMPERED)) | {"sender_attributed", "receiver_attributed"}
    breakable |= {"receiver_rows", "copy_rows"}
    assert {i["name"] for full in FULL.values() for i in full["identities"]} == breakable


@pytest.mark.parametrize("side", ["sender", "receiver"])
def test_too_much_without_a_name(side: str) -> None:
    raw = copy.deepcopy(RAW["one_copy"])
    for row in raw["samples"]:
        if row["side"] == side and row["category"] == "tcp_ip":
            row |= {"category": "unattributed", "symbol": "renamed_in_the_next_kernel"}
    assert f"{side}_attributed" in broken(raw)


@pytest.mark.parametrize("category", ["copy_out", "tcp_ip"])
def test_a_row_that_was_lost(category: str) -> None:
    """Rows are checked as they are printed: one that is dropped or changed afterwards is missed."""
    full = copy.deepcopy(FULL["one_copy"])
    for section, key in (("ledger", "account"), ("stages", "stage")):
        full[section] = [r for r in full[section] if (r["side"], r[key]) != ("receiver", category)]
    assert "receiver_rows" in {i.name for i in builders.checked_again(full) if i.holds is False}


def test_samples_that_were_lost() -> None:
    raw = copy.deepcopy(RAW["one_copy"])
    raw["samples"] = [row for row in raw["samples"] if row["category"] != "copy_out"]
    assert "receiver_time" in broken(raw)


def test_an_arm_that_did_not_run_is_not_checked() -> None:
    raw = copy.deepcopy(RAW["one_copy"])
    raw["run"]["segments"] = [s for s in raw["run"]["segments"] if s["phase"] != "calls"]
    found = {i["name"]: i for i in derive(raw)["identities"]}
    assert found["timed_calls"]["holds"] is None


@pytest.mark.parametrize(("missed", "holds"), [(2, True), (1, False)])
def test_calls_that_the_counting_program_is_known_to_have_missed_are_not_broken(
    missed: int, holds: bool
) -> None:
    raw = copy.deepcopy(RAW["one_copy"])
    (row,) = (row for row in raw["calls"] if row["side"] == "sender" and row["syscall"] == "sendmsg")
    row["calls"] -= 2
    raw["loss"]["recursion_syscall_exit"] = missed
    found = {i["name"]: i for i in derive(raw)["identities"]}["timed_calls"]
    assert (found["left"] - found["right"], found["holds"], found["tolerance"]) == (2, holds, missed)


def test_other_calls_of_the_sender_are_no_sends() -> None:
    """500 looks into the error queue."""
    raw = copy.deepcopy(RAW["zero_copy"])
    (row,) = (row for row in raw["calls"] if row["side"] == "sender")
    raw["calls"].append({**row, "syscall": "recvmsg", "calls": 500})
    (found,) = (i for i in derive(raw)["identities"] if i["name"] == "timed_calls")
    made = sum(s["sides"]["sender"]["calls"] for s in raw["run"]["segments"] if s["phase"] == "calls")
    assert (found["left"], found["right"], found["tolerance"]) == (made, made, 0)


def test_bytes_copied_out_that_the_kernel_did_not_see_keep_the_readers_count_and_have_no_calls() -> None:
    raw = copy.deepcopy(RAW["one_copy"])
    raw["bytes"][COPY_OUT] |= {"bytes": 0, "calls": 0}
    (row,) = (row for row in derive(raw)["ledger"] if row["account"] == "copy_out")
    read = sum(s["sides"]["receiver"]["bytes"] for s in raw["run"]["segments"] if s["phase"] == "ledger")
    assert (row["bytes"], row["bytes_method"], row["calls"]) == (read, "exact", None)
    assert row["reasons"]["calls"] == "nothing was copied out in the segments that count it"


def test_cycles_are_checked_against_their_counter() -> None:
    raw = builders.raw_record("one_copy", pmu=True)
    found = {i["name"]: i for i in derive(raw)["identities"]}
    assert (found["sender_time"]["unit"], found["sender_time"]["holds"]) == ("cycles", True)
    assert "sender_time" in broken(change(raw, ("counters", "sender", "cycles", "value"), 10**9))
    raw["counters"]["sender"]["cycles"] |= {
        "value": None,
        "reason": "multiplexed away",
        "status": "unsupported",
    }
    found = {i["name"]: i for i in derive(raw)["identities"]}
    assert found["sender_time"]["holds"] is None


EXACT = [
    (impl, path)
    for impl, path, _, _ in TAMPERED
    if not {"task-clock", "gather_timed_ns", "cpus_online"} & set(path)
]


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(EXACT), st.integers(1, 10**9), st.booleans())
def test_no_wrong_count_gets_past(case: tuple[str, Path], size: int, more: bool) -> None:
    impl, path = case
    raw = RAW[impl]
    owner, key = at(raw, path)
    by = size if more else -min(size, owner[key])
    if by == 0:
        return
    with suppress(RecordError):  # what no record can have is refused before anything follows from it
        assert broken(change(raw, path, by))


@pytest.mark.parametrize("impl", [impl for impl in RAW if impl != "tls"])
def test_the_rows_have_all_that_was_sent_and_received(impl: str) -> None:
    rows = Counter[str]()
    for row in FULL[impl]["ledger"]:
        rows[row["account"]] += row["bytes"] or 0
    segments = select(convert(RAW[impl], Measured).run.segments, "ledger")
    assert rows["copy_in"] + rows["pin"] == total(segments, "sender", "bytes")
    received = total(segments, "receiver", "bytes") - uncopied_out(segments)
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
def test_no_changed_time_of_the_ledger_gets_past(path: Path, factor: float) -> None:
    """The identities look at the rows as they stand in the record, not at where they came from."""
    full = copy.deepcopy(FULL["zero_copy"])
    owner, key = at(full, path)
    by = max(round(owner[key] * factor), 20_000_000)
    owner[key] += by
    assert any(i.holds is False for i in builders.checked_again(full))


def test_what_is_copied_to_a_relay_is_a_row_of_its_own() -> None:
    of = {row["side"]: row for row in FULL["relay"]["ledger"] if row["account"] == "copy_out"}
    sent = sum(
        s["sides"]["sender"]["bytes"] for s in RAW["relay"]["run"]["segments"] if s["phase"] == "ledger"
    )
    assert of.keys() == {"sender", "receiver"}
    assert (of["sender"]["bytes"], of["sender"]["calls"]) == (sent, sent // 16_384)
    assert of["receiver"]["bytes"] == sent
    assert broken(RAW["relay"]) == set()
    assert "out of one socket and into the other" in FULL["relay"]["verdict"]["sentence"]


def test_with_tls_the_cipher_has_all_bytes_and_no_count_tells_which_were_pinned() -> None:
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


def test_with_tls_what_was_copied_out_is_as_much_of_the_ledgers_bytes_as_of_those_that_were_counted() -> None:
    raw = copy.deepcopy(RAW["tls"])
    rows = {row["hook"]: row for row in raw["bytes"] if row["side"] == "receiver"}
    rows["copy_out_bytes"] |= {"bytes": rows["receive_bytes"]["bytes"] // 4, "calls": 300}
    (row,) = (row for row in derive(raw)["ledger"] if row["account"] == "copy_out")
    ledger = 635_699_200 + 629_145_600 + 642_252_800
    assert (row["bytes"], row["bytes_method"]) == (ledger // 4, "scaled")
    assert row["calls"] == round(300 * ledger / rows["receive_bytes"]["bytes"])


def test_pages_that_are_encrypted_are_in_no_balance_of_references() -> None:
    """By sendfile(2) with kTLS: no count tells what was pinned, so nothing is compared with it."""
    held = {i["name"]: i["holds"] for i in derive(with_tls(RAW["sendfile"]))["identities"]}
    assert held.pop("copy_rows") is None
    assert set(held.values()) == {True} and held["delivered"]
    assert not {"referenced_bytes", "received_split"} & set(held)


# include/net/tcp_states.h: once the peer's FIN has come, it is in bytes_received as one byte more.
BEFORE_FIN = {1: "ESTABLISHED", 4: "FIN_WAIT1", 5: "FIN_WAIT2"}
AFTER_FIN = {6: "TIME_WAIT", 7: "CLOSE", 8: "CLOSE_WAIT", 9: "LAST_ACK", 11: "CLOSING"}


@pytest.mark.parametrize("state", [*BEFORE_FIN, *AFTER_FIN])
def test_the_end_of_the_stream_is_one_byte_where_it_has_come(state: int) -> None:
    raw = copy.deepcopy(RAW["map"])
    (thread,) = raw["traffic"]["receiver"]["threads"]
    for more in (0, 1):
        thread["tcp_info"] |= {"state": state, "bytes_received": raw["traffic"]["receiver"]["bytes"] + more}
        assert ("received_of_tcp" not in broken(raw)) is (more == (state in AFTER_FIN))


def test_where_a_send_was_short_records_are_not_known() -> None:
    raw = copy.deepcopy(RAW["tls"])
    for segment_ in raw["run"]["segments"]:
        segment_["sides"]["sender"]["tls_records"] = None
    raw["traffic"]["sender"]["tls_records"] = None
    full = derive(raw)
    found = {i["name"]: i for i in full["identities"]}
    assert found["acked_bytes"]["holds"] is None and "short" in found["acked_bytes"]["reason"]
    for row in full["ledger"]:
        if row["account"] in ("encrypt", "decrypt"):
            assert row["calls"] is None and "short" in row["reasons"]["calls"]
