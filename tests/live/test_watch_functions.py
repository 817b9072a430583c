# SPDX-License-Identifier: GPL-2.0-only
"""The exact tier for a watched program: known bytes pass through known functions."""

import shlex
from pathlib import Path
from typing import Any

import pytest
from profiling import SLOW, broken_identities, is_root, profile
from programs import holding_identities, iperf3_server, known_sender, missing, watch
from test_functions import MESSAGES, SIZE, cells, expected_hook_kinds, hooked, lost, why_not
from test_watch_ways import watch_moves

pytestmark = [
    pytest.mark.live,
    pytest.mark.all,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
]

SENT = MESSAGES * SIZE


def watch_known_sender(
    how: str, *options: str, by_a_child: bool = False, kind: str = "fentry"
) -> dict[str, Any]:
    """Watch a known sender from start to end, with function hooks, and return the record."""
    reason = why_not(kind)
    if reason:
        pytest.skip(reason)
    with known_sender(how, MESSAGES, SIZE) as argv:
        command = ["sh", "-c", f"{shlex.join(argv)} & wait"] if by_a_child else argv
        # Status 1 is allowed: the command may exit before a ledger has enough samples.
        record = watch(
            *("--whole", "--instruments", "functions", "--attach", kind, *options, "--", *command), check=None
        )
    assert record["target"]["status"] == 0
    assert hooked(record) == expected_hook_kinds(kind)
    assert broken_identities(record) == []
    assert lost(record) == {}
    return record


@pytest.mark.parametrize("kind", ["fentry", "kprobe.multi", "kprobe"])
def test_copied_bytes_of_a_watched_program_are_counted_exactly(kind: str) -> None:
    record = watch_known_sender("copied", kind=kind)
    assert cells(record, "copy_in", "bytes") == SENT
    assert cells(record, "copy_in", "calls") >= MESSAGES
    assert cells(record, "pin", "bytes") == cells(record, "deferred", "bytes") == 0
    assert "functions_copy_in" in holding_identities(record)
    rows = {(row["side"], row["category"]): row for row in record["exact"]}
    assert rows["target", "copy_in"]["cpu_ns"] > 0 and rows["target", "copy_in"]["ns_per_kib"] > 0


def test_both_directions_of_a_process_and_its_children_are_counted() -> None:
    record = watch_known_sender("echo", by_a_child=True)
    assert record["target"]["forks"] > 0
    assert cells(record, "copy_in", "bytes") == cells(record, "copy_out", "bytes") == SENT
    assert {cell["side"] for cell in record["functions"]["cells"]} <= {"target", "other"}
    assert {"functions_copy_in", "functions_copy_out"} <= holding_identities(record)


def test_peeked_bytes_are_copied_out_and_not_received() -> None:
    with known_sender("peek", MESSAGES, SIZE) as argv:
        record = watch("--whole", "--instruments", "sampler", "--", *argv, check=None)
    assert broken_identities(record) == []
    assert record["rx_bytes"] == SENT
    assert sum(row["bytes"] for row in record["volume"] if row["direction"] == "peek") == SENT
    assert sum(row["bytes"] for row in record["volume"] if row["direction"] == "copy_out") == 2 * SENT


def test_urgent_bytes_pass_no_hooked_copy_function(tmp_path: Path) -> None:
    reason = why_not()
    if reason:
        pytest.skip(reason)
    record, truth = watch_moves("tcp_urgent", tmp_path, "--whole", "--instruments", "functions")
    assert truth["received"] == record["rx_bytes"]
    assert cells(record, "copy_out", "bytes") == truth["received"] - truth["sends"]
    assert "functions_copy_out" in holding_identities(record)


def test_copies_of_other_sockets_are_not_counted() -> None:
    """The program also reads a UNIX socket, which uses the same copy function as TCP."""
    record = watch_known_sender("elsewhere")
    assert cells(record, "copy_in", "bytes") == SENT
    assert "functions_copy_out" in holding_identities(record)


def test_sendfile_of_a_watched_program_copies_nothing() -> None:
    record = watch_known_sender("sendfile")
    assert cells(record, "copy_in", "bytes") == 0
    assert cells(record, "pin", "bytes") == SENT
    assert "functions_pin" in holding_identities(record)


def test_late_copies_over_lo_are_owned_by_the_watched_sender() -> None:
    record = watch_known_sender("zerocopy")
    owned = {row["owner_side"]: row["bytes"] for row in record["zerocopy_life"]["owners"]}
    retransmitted_bytes = sum(row["retransmitted_bytes"] for row in record["connections"])
    assert set(owned) == {"target"} and SENT <= owned["target"] <= SENT + retransmitted_bytes
    assert cells(record, "pin", "bytes") == SENT and cells(record, "copy_in", "bytes") == 0
    (completions,) = record["functions"]["completions"]
    assert completions == {"side": "target", "copied": MESSAGES, "zerocopied": 0}
    assert "functions_owner" in holding_identities(record)


def test_gate_4_times_one_call_in_four_and_counts_every_call() -> None:
    record = watch_known_sender("copied", "--gate", "4", "--count", "cpu-clock")
    assert cells(record, "copy_in", "bytes") == SENT
    assert 0 < cells(record, "copy_in", "timed_calls") < cells(record, "copy_in", "calls")
    assert [event["name"] for event in record["functions"]["events"]] == ["cpu-clock"]


@pytest.mark.skipif(missing("iperf3") is not None, reason="needs iperf3: tools/deps.sh test")
def test_functions_are_hooked_in_the_last_segments_of_a_running_program() -> None:
    if reason := why_not():
        pytest.skip(reason)
    # Attaching takes a second in a guest. The program must still run then.
    with iperf3_server() as port:
        argv = ["iperf3", "-c", "127.0.0.1", "-p", str(port), "-t", str(round(6 * max(1, SLOW / 2)))]
        record = watch("--exact", "--duration", "3", "--", *argv)
    phases = [segment["phase"] for segment in record["run"]["segments"]]
    assert record["run"]["tier"] == "exact" and set(phases[-6:]) == {"functions", "unarmed"}
    assert record["overhead"]["phases"]["functions"]["segments"] == {"unarmed": 3, "functions": 3}
    assert "functions_copy_in" in holding_identities(record)
    assert cells(record, "copy_in", "bytes") > 1 << 20


def test_refused_function_hooks_are_an_error_of_one_line() -> None:
    if why_not() is None:
        pytest.skip("this kernel allows function hooks")
    done = profile("--exact", "--duration", "1", "--", "sleep", "1", verb="watch", check=1)
    assert "--instruments auto" in done.stderr and done.stderr.count("\n") == 1
