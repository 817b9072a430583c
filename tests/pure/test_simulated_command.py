# SPDX-License-Identifier: GPL-2.0-only
"""Programs of the user in a simulated machine: which are accepted, and the record made from their counts."""

import os
import struct
from pathlib import Path

import pytest
from builders.documents import typed_boot, validate
from builders.simulated import command_output, command_record
from copyscope.base.errors import UsageError
from copyscope.commands import simulate as simulate_command
from copyscope.run.simulate import job
from copyscope.show.simulated import simulated_lines

pytestmark = pytest.mark.timeout(20)


def elf(*segment_types: int, kind: int = 2, machine: int = 62) -> bytes:
    """Return an ELF file without sections: its header, and a program header for each of `segment_types`."""
    sizes = (0, 64, 0, 0, 64, 56, len(segment_types), 0, 0, 0)
    header = b"\x7fELF\x02\x01".ljust(16, b"\0") + struct.pack("<HHIQQQIHHHHHH", kind, machine, 1, *sizes)
    return header + b"".join(
        struct.pack("<I", segment_type).ljust(56, b"\0") for segment_type in segment_types
    )


@pytest.mark.parametrize(
    ("program", "reason"),
    [
        (elf(1, 3), "needs shared libraries, which the guest lacks; link it with -static"),
        (elf(1, machine=183), "not a program for x86-64"),
        (b"#!/bin/sh\necho\n", "the guest has no interpreters; give a compiled program"),
        (elf(1)[:40], "not a program for x86-64"),
        (b"", "not a program for x86-64"),
    ],
)
def test_a_program_that_cannot_run_in_the_guest_is_refused_before_the_boot(
    program: bytes,
    reason: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("copyscope.commands.entry.build_if_stale", lambda *_: None)
    path = tmp_path / "program"
    path.write_bytes(program)
    path.chmod(0o755)
    assert simulate_command.main(["--", str(path)]) == 2
    (message,) = capsys.readouterr().err.splitlines()
    assert message.startswith(f"copyscope simulate: {path}: ") and reason in message


def test_a_static_program_is_accepted(tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_bytes(elf(1, 6, kind=3))
    path.chmod(0o755)
    # A position-independent program has no fixed addresses of functions.
    assert job.read_command([str(path), "a b"]).symbols == b""
    for words, reason in (
        (["/nowhere/program"], "no such program"),
        ([str(path), "a\nb"], "line feeds"),
        ([str(path), ""], "empty"),
        ([str(path)] + ["x"] * 90, "at most 90"),
        ([str(path), "--"], "no command after the server"),
        (["/nowhere/program", "--", str(path)], "no such program"),
    ):
        with pytest.raises(UsageError, match=reason):
            job.read_command(words)
    with_server = job.read_command([str(path), "7000", "--", str(path), "1"])
    assert (with_server.server, with_server.words) == ((str(path), "7000"), (str(path), "1"))
    assert with_server.server_program == with_server.program == path.read_bytes()
    assert with_server.line == [str(path), "7000", "--", str(path), "1"]
    os.truncate(path, job.PROGRAM_MAX_BYTES + 1)
    with pytest.raises(UsageError, match="at most 64 MiB"):
        job.read_command([str(path)])


def test_the_job_of_a_command_has_network_server_and_words() -> None:
    assert job.command_text(["./talks", "64", "a b"]) == "network loopback\ncommand /command 64 a\x1fb\n"
    with_server = job.command_text(["./talks", "1"], ["./serves", "7000"])
    assert with_server == "network loopback\nserver /server 7000\ncommand /command 1\n"


@pytest.mark.parametrize("words", [["--size", "1K"], ["--topology", "nics"], ["--impl", "two_copy"]])
def test_options_of_own_traffic_are_refused_for_a_command(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate_command.main([*words, "--", "true"]) == 2
    assert f"{words[0]}: not available for a command in a simulated machine" in capsys.readouterr().err


def test_copies_and_memcpy_of_a_command_are_accounts() -> None:
    record = command_record()
    assert validate(record) == [] and record["verdict"]["valid"]
    (measurement,) = record["simulated"]["measurements"]
    assert (measurement["impl"], measurement["command"], measurement["delivered_bytes"]) == (
        None,
        ["./talks", "64 times"],
        65536,
    )
    read_bytes = {row["category"]: row["read_bytes_per_kib"] for row in measurement["accounts"]}
    assert read_bytes == {"copy_in": 1024, "gather": 1024, "copy_out": 1024}
    # 9 + 10 + 5 + 3 instructions. Those of an idle CPU do not belong to the command.
    sides = {row["side"]: row["instructions_per_kib"] for row in measurement["sides"]}
    assert sides["command"] == 27 and sides["other"] == pytest.approx(9999 / 64, abs=1e-3)
    text = " ".join(
        " ".join(line.plain for line in simulated_lines(typed_boot(record).simulated, 100)).split()
    )
    assert "./talks 64 times, SIMULATED: loopback, 64 KiB copied out of sockets, Linux 6.12.107" in text


def test_a_command_without_received_bytes_is_invalid() -> None:
    record = command_record(command_output().replace("ffffffff81000300", "ffffffff81000400"))
    assert record["verdict"]["reasons"] == [
        "./talks 64 times: bytes that were copied out of sockets, at least one: 0 instead of 1"
    ]
