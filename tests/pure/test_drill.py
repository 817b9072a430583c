# SPDX-License-Identifier: GPL-2.0-only
"""`copyscope drill`: send methods with known results, and the comparison with a saved table."""

import errno
import json
import os
import platform
import subprocess
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from copyscope.commands import drill
from copyscope.commands.drill import describe_row, drill_lines
from copyscope.doctor.drill import trials
from copyscope.doctor.drill.copiers import ACCOUNTS_OF_RESULT, Copier, count_copies, most_frequent
from copyscope.doctor.drill.trials import (
    BUFFER_BYTES,
    TRIALS,
    WAYS,
    DrillRow,
    copier_finder,
    judge,
    list_changes,
    open_path,
    run_all,
    summarise_notifications,
    try_way,
)
from copyscope.machine.topology import TopologyError
from copyscope.taxonomy.taxonomy import Taxonomy


def over(written: str, way: str, directory: Path = Path("/var/tmp")) -> DrillRow:
    """Return the row of a send method over the path that an option names."""
    with open_path(written) as path, copier_finder() as find:
        return try_way(way, path, directory, find)


def test_send_copies_before_it_returns() -> None:
    row = over("lo", "send")
    assert (row.result, row.changed_at_once_bytes, row.changed_bytes) == ("copied before return", 0, 0)
    assert describe_row(row).startswith("copied before return")


@pytest.mark.parametrize("way", ["sendfile, file", "sendfile, memfd", "splice, file", "vmsplice"])
def test_sends_by_reference_stay_references_over_lo(way: str) -> None:
    row = over("lo", way)
    assert (row.result, row.changed_bytes, row.notified) == ("by reference", BUFFER_BYTES, None)
    assert describe_row(row) == "by reference: 16,384 of 16,384 bytes changed"


@pytest.mark.parametrize("way", ["MSG_ZEROCOPY", "SEND_ZC"])
def test_lo_copies_a_zero_copy_send_at_delivery_and_notifies_it(way: str) -> None:
    """While the receiver has no room, the kernel refers to the buffer. It copies at delivery."""
    row = over("lo", way)
    if way == "SEND_ZC" and row.reason is not None:
        pytest.skip(row.reason)
    late = ("late copy", BUFFER_BYTES, 0, "copied")
    assert (row.result, row.changed_at_once_bytes, row.changed_bytes, row.notified) == late
    assert row.arrived_after_us is not None and row.arrived_after_us >= 0


def test_ktls_copies_before_the_call_returns_or_is_unavailable(tmp_path: Path) -> None:
    rows = {row.way: row for row in run_all(tmp_path, ["tls"])}
    for way in ("send", "sendfile, memfd", "vmsplice"):
        assert rows[way].result == "copied before return" or "modprobe tls" in (rows[way].reason or "")
    assert rows["MSG_ZEROCOPY"].reason


def test_refused_method_is_a_row_with_the_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(trials.WAYS, "SEND_ZC", ("--impl", "uring_zc", "--issue", "wrong"))
    row = over("lo", "SEND_ZC", tmp_path)
    assert (row.result, row.changed_bytes, row.notified) == ("refused", None, None)
    assert row.reason is not None and row.reason.startswith("--issue wrong")


ON_A_SMALL_DISK = """
mount -t tmpfs -o size=4k none "$0" && exec "$@"
"""
DRILL = """
import sys
from pathlib import Path
from copyscope.doctor.drill.trials import run_all
for row in run_all(Path(sys.argv[1]), ["lo"]):
    print(row.way, row.result, row.reason, sep="|")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_other_methods_are_tried_on_a_full_disk(tmp_path: Path) -> None:
    """Writing to a mapped file on a full disk would raise SIGBUS."""
    python = [sys.executable, "-P", "-c", DRILL, str(tmp_path)]
    argv = ["unshare", "--mount", "sh", "-c", ON_A_SMALL_DISK, str(tmp_path), *python]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=50, check=False)
    if "mount:" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    rows = dict(line.split("|", 1) for line in done.stdout.splitlines())
    for way in ("sendfile, file", "splice, file"):
        assert rows[way].startswith("refused|--file ") and os.strerror(errno.ENOSPC) in rows[way]
    assert rows["send"] == "copied before return|None"
    assert rows["sendfile, memfd"] == "by reference|None"


def test_trials_leave_no_file_open() -> None:
    def open_files() -> int:
        # A thread closes the stderr pipe of a program shortly after the program has exited.
        for thread in set(threading.enumerate()) - {threading.current_thread()}:
            thread.join(5)
        return len(list(Path("/proc/self/fd").iterdir()))

    over("lo", "vmsplice")
    before = open_files()
    over("lo", "vmsplice")
    over("lo", "SEND_ZC")
    assert open_files() == before


# Leaf first, as captured on 6.18 and 6.12.
STACKS = {
    ("_copy_from_iter", "tcp_sendmsg_locked", "copy_in"): (
        "copied before return",
        "_copy_from_iter tcp_sendmsg_locked tcp_sendmsg sock_write_iter vfs_write",
    ),
    ("_copy_from_iter", "unix_stream_sendmsg", "copy_in"): (
        "copied before return",
        "rep_movs_alternative _copy_from_iter copy_page_from_iter skb_copy_datagram_from_iter"
        " unix_stream_sendmsg sock_write_iter vfs_write",
    ),
    ("aes_gcm_enc_update_vaes_avx10_256", "tls_push_record", "encrypt"): (
        "copied before return",
        "aes_gcm_enc_update_vaes_avx10_256 crypto_aead_encrypt tls_push_record bpf_exec_tx_verdict",
    ),
    ("skb_copy_ubufs", "ip_local_deliver_finish", "deferred"): (
        "late copy",
        "__pi_memcpy skb_copy_ubufs ip_local_deliver_finish __netif_receive_skb_one_core process_backlog",
    ),
}


@pytest.mark.parametrize(("copier", "result_and_stack"), STACKS.items())
def test_copying_function_and_its_caller_are_found_in_stacks(
    copier: tuple[str, str, str], result_and_stack: tuple[str, str]
) -> None:
    result, stack = result_and_stack
    taxonomy = Taxonomy.load()
    receiver = ["_copy_to_iter", "simple_copy_to_iter", "__skb_datagram_iter", "tcp_recvmsg_locked"]
    stacks = [receiver] * 9 + [stack.split()] * 5
    assert most_frequent(count_copies(stacks, ACCOUNTS_OF_RESULT[result], taxonomy), "samples") == Copier(
        *copier, "samples", 5
    )
    other = ACCOUNTS_OF_RESULT["late copy" if result == "copied before return" else "copied before return"]
    assert not count_copies(stacks, other, taxonomy)


def test_copying_function_is_known_or_has_a_reason(tmp_path: Path) -> None:
    rows = {row.way: row for row in run_all(tmp_path, ["lo"])}
    for row in rows.values():
        assert (row.copied_by is None) != (row.copied_by_reason is None)
    assert rows["vmsplice"].copied_by_reason == "nothing was copied"
    send = rows["send"]
    if send.copied_by is None:
        assert "run as root" in (send.copied_by_reason or "")
    else:
        assert (send.copied_by.within, send.copied_by.account) == ("tcp_sendmsg_locked", "copy_in")
        assert send.copied_by.count >= 3 and "in tcp_sendmsg_locked (" in describe_row(send)


def test_summary_comes_last_and_a_path_that_refuses_all_methods_has_one_row() -> None:
    def row(way: str, path: str, result: Any, reason: str | None = None) -> DrillRow:
        return DrillRow(way, path, result, BUFFER_BYTES, 0, 0, 1, None, reason)

    names = ("send", "sendfile, file", "sendfile, memfd", "vmsplice")
    results = ("copied before return", "by reference", "late copy", "by reference")
    rows = [row(way, "lo", result) for way, result in zip(names, results, strict=True)]
    rows += [row(way, "tls", "refused", "no tls here") for way in names]
    lines = [line.plain for line in drill_lines(rows, "6.18", 80)]
    tls = [line for line in lines if line.startswith("tls")]
    assert tls == ["tls   all              refused: no tls here"]
    assert max(map(len, lines)) <= 80 and lines[-3:] == [
        "send      copied                     refused",
        "sendfile  by reference or late copy  refused",
        "vmsplice  by reference               refused",
    ]


@pytest.mark.parametrize(
    ("at_once", "arrived", "result"),
    [
        (0, 0, "copied before return"),
        (9, 0, "late copy"),
        (BUFFER_BYTES, 0, "late copy"),
        (0, 1, "in part by reference"),
        (BUFFER_BYTES, BUFFER_BYTES, "by reference"),
    ],
)
def test_result_follows_from_the_changed_bytes(at_once: int, arrived: int, result: str) -> None:
    assert judge(at_once, arrived) == result


def test_one_notification_without_a_copy_means_zero_copy() -> None:
    assert summarise_notifications(None) is None
    assert summarise_notifications({"completions": 0, "copied": 0}) is None
    assert summarise_notifications({"completions": 5, "copied": 5}) == "copied"
    assert summarise_notifications({"completions": 5, "copied": 4}) == "zero-copy"


def test_command_compares_with_an_expected_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def quick(directory: Path, over_paths: Sequence[str]) -> list[DrillRow]:
        assert directory == tmp_path and over_paths[-1] == "nics:a,b"
        return [over("lo", way, directory) for way in ("send", "vmsplice", "MSG_ZEROCOPY")]

    monkeypatch.setattr(drill, "run_all", quick)
    kept = tmp_path / "kept.json"
    options = ["--file", str(tmp_path), "--nics", "a,b"]
    assert drill.main([*options, "--json", str(kept)]) == 0
    assert f"Linux {platform.release()}" in capsys.readouterr().out
    table: dict[str, Any] = json.loads(kept.read_text())
    assert [(row["way"], row["bytes"]) for row in table["ways"]] == [
        (name, BUFFER_BYTES) for name in ("send", "vmsplice", "MSG_ZEROCOPY")
    ]
    assert drill.main([*options, "--expect", str(kept)]) == 0
    capsys.readouterr()
    table["ways"][0]["result"] = "by reference"
    kept.write_text(json.dumps(table))
    assert drill.main([*options, "--expect", str(kept)]) == 1
    errors = capsys.readouterr().err
    assert errors == "copyscope drill: --expect: send over lo: was by reference, is copied before return\n"
    assert list_changes([], {("send", "veth"): "copied before return"}) == [
        "send over veth: was copied before return, is not tried"
    ]
    for wrong in ("[]", "{", '{"ways": [1]}', '{"ways": []}'):
        kept.write_text(wrong)
        assert drill.main([*options, "--expect", str(kept)]) == 2


def test_missing_file_or_interface_is_an_error_and_no_refused_method(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "missing")
    assert drill.main(["--expect", missing]) == drill.main(["--file", missing]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"copyscope drill: --expect {missing}: No such file or directory; "
        "give a file that copyscope drill --json wrote",
        f"copyscope drill: --file {missing}: No such file or directory; give a writable directory",
    ]
    with pytest.raises(TopologyError, match="name two interfaces"):
        run_all(tmp_path, ["nics:lo"])


def test_all_methods_are_tried(tmp_path: Path) -> None:
    assert TRIALS >= 5  # a single trial could succeed by chance
    rows = run_all(tmp_path, ["lo"])
    assert [(row.way, row.path) for row in rows] == [(way, "lo") for way in WAYS]
    assert all(row.reason for row in rows if row.result == "refused")
