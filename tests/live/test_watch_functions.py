"""The exact tier of a program that we did not write: known bytes through known functions."""

import shlex
from pathlib import Path
from typing import Any

import pytest
from profiling import SLOW, broken_identities, is_root, profile
from programs import held, iperf3_server, known_sender, missing, watch
from test_functions import MESSAGES, SIZE, cells, hooked, lost, ways, why_not
from test_watch_ways import moved

pytestmark = [
    pytest.mark.live,
    pytest.mark.all,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
]

SENT = MESSAGES * SIZE


def known(how: str, *options: str, by_a_child: bool = False, kind: str = "fentry") -> dict[str, Any]:
    """The record of the known sender's whole life."""
    reason = why_not(kind)
    if reason:
        pytest.skip(reason)
    with known_sender(how, MESSAGES, SIZE) as argv:
        command = ["sh", "-c", f"{shlex.join(argv)} & wait"] if by_a_child else argv
        # 1: it is over within less time than a ledger needs.
        record = watch(
            *("--whole", "--instruments", "functions", "--attach", kind, *options, "--", *command), check=None
        )
    assert record["target"]["status"] == 0
    assert hooked(record) == ways(kind)
    assert broken_identities(record) == []
    assert lost(record) == {}
    return record


@pytest.mark.parametrize("kind", ["fentry", "kprobe.multi", "kprobe"])
def test_what_is_copied_in_is_counted_to_the_byte(kind: str) -> None:
    record = known("copied", kind=kind)
    assert cells(record, "copy_in", "bytes") == SENT
    assert cells(record, "copy_in", "calls") >= MESSAGES
    assert cells(record, "pin", "bytes") == cells(record, "deferred", "bytes") == 0
    assert "functions_copy_in" in held(record)
    rows = {(row["side"], row["category"]): row for row in record["exact"]}
    assert rows["target", "copy_in"]["cpu_ns"] > 0 and rows["target", "copy_in"]["ns_per_kib"] > 0


def test_both_directions_of_one_process_and_its_children() -> None:
    record = known("echo", by_a_child=True)
    assert record["target"]["forks"] > 0
    assert cells(record, "copy_in", "bytes") == cells(record, "copy_out", "bytes") == SENT
    assert {cell["side"] for cell in record["functions"]["cells"]} <= {"target", "other"}
    assert {"functions_copy_in", "functions_copy_out"} <= held(record)


def test_what_is_only_looked_at_is_copied_and_not_received() -> None:
    with known_sender("peek", MESSAGES, SIZE) as argv:
        record = watch("--whole", "--instruments", "sampler", "--", *argv, check=None)
    assert broken_identities(record) == []
    assert record["rx_bytes"] == SENT
    assert sum(row["bytes"] for row in record["volume"] if row["direction"] == "peek") == SENT
    assert sum(row["bytes"] for row in record["volume"] if row["direction"] == "copy_out") == 2 * SENT


def test_urgent_bytes_pass_no_hooked_function(tmp_path: Path) -> None:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    record, truth = moved("tcp_urgent", tmp_path, "--whole", "--instruments", "functions")
    assert truth["received"] == record["rx_bytes"]
    assert cells(record, "copy_out", "bytes") == truth["received"] - truth["sends"]
    assert "functions_copy_out" in held(record)


def test_copies_of_other_sockets_are_not_counted() -> None:
    """It writes to a UNIX socket, too, and reads it: by the same function that copies out of a TCP socket."""
    record = known("elsewhere")
    assert cells(record, "copy_in", "bytes") == SENT
    assert "functions_copy_out" in held(record)


def test_sendfile_refers_to_pages_and_copies_nothing() -> None:
    record = known("sendfile")
    assert cells(record, "copy_in", "bytes") == 0
    assert cells(record, "pin", "bytes") == SENT
    assert "functions_pin" in held(record)


def test_zero_copy_over_lo_is_copied_later_and_the_memory_is_the_senders() -> None:
    record = known("zerocopy")
    owned = {row["owner_side"]: row["bytes"] for row in record["zerocopy_life"]["owners"]}
    again = sum(row["retransmitted_bytes"] for row in record["connections"])
    assert set(owned) == {"target"} and SENT <= owned["target"] <= SENT + again
    assert cells(record, "pin", "bytes") == SENT and cells(record, "copy_in", "bytes") == 0
    (ended,) = record["functions"]["completions"]
    assert ended == {"side": "target", "copied": MESSAGES, "zerocopied": 0}
    assert "functions_owner" in held(record)


def test_one_call_in_four_is_timed_and_every_one_is_counted() -> None:
    record = known("copied", "--gate", "4", "--count", "cpu-clock")
    assert cells(record, "copy_in", "bytes") == SENT
    assert 0 < cells(record, "copy_in", "timed_calls") < cells(record, "copy_in", "calls")
    assert [event["name"] for event in record["functions"]["events"]] == ["cpu-clock"]


@pytest.mark.skipif(missing("iperf3") is not None, reason="needs iperf3: tools/deps.sh test")
def test_functions_are_hooked_in_the_last_segments_of_a_program_that_goes_on() -> None:
    if reason := why_not():
        pytest.skip(reason)
    # Attaching takes a second in a guest; the program must still be there.
    with iperf3_server() as port:
        argv = ["iperf3", "-c", "127.0.0.1", "-p", str(port), "-t", str(round(6 * max(1, SLOW / 2)))]
        record = watch("--exact", "--duration", "3", "--", *argv)
    phases = [segment["phase"] for segment in record["run"]["segments"]]
    assert record["run"]["tier"] == "exact" and set(phases[-6:]) == {"functions", "unarmed"}
    assert record["overhead"]["phases"]["functions"]["segments"] == {"unarmed": 3, "functions": 3}
    assert "functions_copy_in" in held(record)
    assert cells(record, "copy_in", "bytes") > 1 << 20


def test_a_kernel_that_refuses_says_why_and_what_to_do() -> None:
    if why_not() is None:
        pytest.skip("this kernel allows function hooks")
    done = profile("--exact", "--duration", "1", "--", "sleep", "1", verb="watch", check=1)
    assert "--instruments auto" in done.stderr and done.stderr.count("\n") == 1
