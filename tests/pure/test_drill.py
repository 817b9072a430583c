"""The drill: what it says of ways whose truth is known, and of a table that was kept."""

import errno
import json
import os
import platform
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from copyscope.commands import drill as command
from copyscope.drill.connections import open_path
from copyscope.drill.copiers import COPYING, Copier, copies, most_frequent
from copyscope.drill.kernel_calls import Ring
from copyscope.drill.trials import TRIALS, Row, changes, judge, run_all, try_way, who_copies
from copyscope.drill.ways import (
    BUFFER_BYTES,
    MsgZerocopy,
    SendfileMemfd,
    SendfilePages,
    SendZc,
    Splice,
    Vmsplice,
    Way,
    Write,
)
from copyscope.show.drill import drill_lines, say
from copyscope.taxonomy.taxonomy import Taxonomy
from copyscope.topology import TopologyError


class Late(Way):
    """A kernel that sends what lies there a moment after the call: by reference, for sure."""

    name = "late"
    first_bytes = 0  # of them copied within the call

    def send(self) -> None:
        first = self.memory[: self.first_bytes]
        later = threading.Timer(0.02, lambda: self.sock.sendall(first + self.memory[self.first_bytes :]))
        later.start()


class Half(Late):
    name = "half"
    first_bytes = BUFFER_BYTES // 2


def over(path: str, way: type[Way]) -> Row:
    with open_path(path) as (name, connect), who_copies() as find:
        return try_way(way, name, connect, find)


@pytest.mark.parametrize("path", ["lo", "unix"])
def test_write_copies_before_it_returns(path: str) -> None:
    row = over(path, Write)
    assert (row.result, row.changed_at_once_bytes, row.changed_bytes) == ("copied before return", 0, 0)
    assert say(row).startswith("copied before return")


def test_what_is_sent_later_is_by_reference() -> None:
    row = over("unix", Late)
    assert (row.result, row.changed_bytes) == ("by reference", BUFFER_BYTES)
    assert say(row) == "by reference: 16,384 of 16,384 bytes changed"
    row = over("unix", Half)
    assert say(row) == "in part by reference: 8,192 of 16,384 bytes changed"


def test_local_delivery_copies_what_was_sent_without_a_copy_when_it_delivers_and_says_so() -> None:
    """The receiver has no room at first: until it has, the kernel only refers to the buffer."""
    late = ("late copy", BUFFER_BYTES, 0, "copied")
    row = over("lo", MsgZerocopy)
    assert (row.result, row.changed_at_once_bytes, row.changed_bytes, row.notified) == late
    with suppress(OSError), Ring():
        row = over("lo", SendZc)
        found = (row.result, row.changed_at_once_bytes, row.changed_bytes, row.notified)
        assert row.reason is not None or found == late


def test_the_cipher_copies_before_the_call_returns_or_there_is_none(tmp_path: Path) -> None:
    rows = {row.way: row for row in run_all(tmp_path, ["tls"])}
    for way in ("write", "sendfile, memfd", "vmsplice"):
        assert rows[way].result == "copied before return" or "modprobe tls" in (rows[way].reason or "")
    assert rows["MSG_ZEROCOPY"].reason


@pytest.mark.parametrize("way", [MsgZerocopy, SendZc])
def test_a_socket_that_cannot_is_a_row_with_the_reason(way: type[Way]) -> None:
    row = over("unix", way)
    assert (row.result, row.changed_bytes, row.notified) == ("refused", None, None)
    assert row.reason


@pytest.mark.parametrize("way", [SendfilePages, Splice, SendfileMemfd])
def test_a_file_without_room_is_a_row_with_the_reason(
    way: type[Way], monkeypatch: pytest.MonkeyPatch
) -> None:
    full = os.strerror(errno.ENOSPC)
    for took in (0, 4096, OSError(errno.ENOSPC, full)):
        monkeypatch.setattr(os, "pwrite", Mock(side_effect=[took]))
        row = over("unix", way)
        assert (row.result, row.reason, row.changed_bytes) == ("refused", full, None)


ON_A_SMALL_DISK = """
mount -t tmpfs -o size=4k none "$0" && exec "$@"
"""
DRILL = """
import sys
from pathlib import Path
from copyscope.drill.trials import run_all
for row in run_all(Path(sys.argv[1]), ["unix"]):
    print(row.way, row.result, row.reason, sep="|")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
def test_on_a_full_disk_the_other_ways_are_tried(tmp_path: Path) -> None:
    """A mapping of a file there would be ended by SIGBUS."""
    python = [sys.executable, "-P", "-c", DRILL, str(tmp_path)]
    argv = ["unshare", "--mount", "sh", "-c", ON_A_SMALL_DISK, str(tmp_path), *python]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=50, check=False)
    if "mount:" in done.stderr:
        pytest.skip(done.stderr)
    assert done.returncode == 0, done.stderr
    rows = dict(line.split("|", 1) for line in done.stdout.splitlines())
    full = f"refused|{os.strerror(errno.ENOSPC)}"
    assert rows["sendfile, file"] == rows["splice, file"] == full
    assert rows["write"] == "copied before return|None"
    assert rows["sendfile, memfd"].endswith("|None")


def test_no_file_is_left_open() -> None:
    open_files: Callable[[], int] = lambda: len(list(Path("/proc/self/fd").iterdir()))  # noqa: E731
    over("unix", Vmsplice)
    before = open_files()
    over("unix", Vmsplice)
    over("lo", SendZc)
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


@pytest.mark.parametrize(("said", "found"), STACKS.items())
def test_the_function_that_copied_and_the_one_for_which(
    said: tuple[str, str, str], found: tuple[str, str]
) -> None:
    result, stack = found
    taxonomy = Taxonomy.load()
    receiver = ["_copy_to_iter", "simple_copy_to_iter", "__skb_datagram_iter", "tcp_recvmsg_locked"]
    stacks = [receiver] * 9 + [stack.split()] * 5
    assert most_frequent(copies(stacks, COPYING[result], taxonomy), "samples") == Copier(*said, "samples", 5)
    other = COPYING["late copy" if result == "copied before return" else "copied before return"]
    assert not copies(stacks, other, taxonomy)


def test_who_copied_is_known_or_has_its_reason(tmp_path: Path) -> None:
    rows = {row.way: row for row in run_all(tmp_path, ["unix"])}
    for row in rows.values():
        assert (row.copied_by is None) != (row.copied_by_reason is None)
    assert rows["vmsplice"].copied_by_reason == "nothing was copied"
    write = rows["write"]
    if write.copied_by is None:
        assert "run as root" in (write.copied_by_reason or "")
    else:
        assert (write.copied_by.within, write.copied_by.account) == ("unix_stream_sendmsg", "copy_in")
        assert write.copied_by.count >= 3 and "in unix_stream_sendmsg (" in say(write)


def test_the_answer_in_short_stands_last_and_a_path_without_any_way_has_one_row() -> None:
    def row(way: str, path: str, result: Any, reason: str | None = None) -> Row:
        return Row(way, path, result, BUFFER_BYTES, 0, 0, 1, None, reason)

    names = ("write", "sendfile, file", "sendfile, memfd", "vmsplice")
    results = ("copied before return", "by reference", "late copy", "by reference")
    rows = [row(way, "lo", result) for way, result in zip(names, results, strict=True)]
    rows += [row(way, "tls", "refused", "no tls here") for way in names]
    lines = [line.plain for line in drill_lines(rows, "6.18", 80)]
    tls = [line for line in lines if line.startswith("tls")]
    assert tls == ["tls   all              refused: no tls here"]
    assert max(map(len, lines)) <= 80 and lines[-3:] == [
        "write     copied                     refused",
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
def test_judgement(at_once: int, arrived: int, result: str) -> None:
    assert judge(at_once, arrived) == result


def test_the_command_and_what_it_expects(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def quick(directory: Path, over_paths: Sequence[str]) -> list[Row]:
        assert directory == tmp_path and over_paths[-1] == "nics:a,b"
        return [over("unix", way) for way in (Write, Vmsplice, MsgZerocopy)]

    monkeypatch.setattr(command, "run_all", quick)
    kept = tmp_path / "kept.json"
    options = ["--file", str(tmp_path), "--nics", "a,b"]
    assert command.main([*options, "--json", str(kept)]) == 0
    assert f"Linux {platform.release()}" in capsys.readouterr().out
    table: dict[str, Any] = json.loads(kept.read_text())
    assert [(row["way"], row["bytes"]) for row in table["ways"]] == [
        (name, BUFFER_BYTES) for name in ("write", "vmsplice", "MSG_ZEROCOPY")
    ]
    assert command.main([*options, "--expect", str(kept)]) == 0
    capsys.readouterr()
    table["ways"][0]["result"] = "by reference"
    kept.write_text(json.dumps(table))
    assert command.main([*options, "--expect", str(kept)]) == 1
    said = capsys.readouterr().err
    assert said == "copyscope: expect: write over unix: was by reference, is copied before return\n"
    assert changes([], {("write", "veth"): "copied before return"}) == [
        "write over veth: was copied before return, is not tried"
    ]
    for wrong in ("[]", "{", '{"ways": [1]}', '{"ways": []}'):
        kept.write_text(wrong)
        assert command.main([*options, "--expect", str(kept)]) == 2


def test_a_file_or_a_card_that_is_not_there_is_no_way_that_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    missing = str(tmp_path / "missing")
    assert command.main(["--expect", missing]) == command.main(["--file", missing]) == 2
    assert capsys.readouterr().err.splitlines() == [
        f"copyscope: --expect: {missing}: No such file or directory: name a table of copyscope drill --json",
        f"copyscope: --file: {missing}: No such file or directory: name a directory to write into",
    ]
    with pytest.raises(TopologyError, match="name two interfaces"):
        run_all(tmp_path, ["nics:lo"])


def test_all_ways_are_quick(tmp_path: Path) -> None:
    assert TRIALS >= 5  # one alone would be luck
    rows = run_all(tmp_path, ("lo", "unix"))
    assert {row.path for row in rows} == {"lo", "unix"} and len(rows) == 16
    assert all(row.reason for row in rows if row.result == "refused")
