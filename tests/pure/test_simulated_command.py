"""A program of the user's for the simulated machine: what gets in, and what its counts become."""

import os
import struct
from pathlib import Path

import pytest
from builders.simulated import command_output, command_record
from copyscope.commands import simulate as simulate_command
from copyscope.errors import UsageError
from copyscope.record import store
from copyscope.record.check import typed_boot
from copyscope.show.simulated import simulated_lines
from copyscope.simulate import command, job

pytestmark = pytest.mark.timeout(20)


def elf(*parts: int, kind: int = 2, machine: int = 62) -> bytes:
    """A header of 64 bytes, and one of 56 for each part of such a type; no sections."""
    sizes = (0, 64, 0, 0, 64, 56, len(parts), 0, 0, 0)
    head = b"\x7fELF\x02\x01".ljust(16, b"\0") + struct.pack("<HHIQQQIHHHHHH", kind, machine, 1, *sizes)
    return head + b"".join(struct.pack("<I", part).ljust(56, b"\0") for part in parts)


@pytest.mark.parametrize(
    ("program", "why"),
    [
        (elf(1, 3), "needs shared libraries, which the guest lacks: link it with -static"),
        (elf(1, machine=183), "not a program for x86-64"),
        (b"#!/bin/sh\necho\n", "the guest has no interpreters: give a compiled one"),
        (elf(1)[:40], "not a program for x86-64"),
        (b"", "not a program for x86-64"),
    ],
)
def test_what_cannot_run_in_the_guest_is_refused_before_it_boots(
    program: bytes,
    why: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("copyscope.commands.entry.build_if_stale", lambda *_: None)
    path = tmp_path / "program"
    path.write_bytes(program)
    path.chmod(0o755)
    assert simulate_command.main(["--", str(path)]) == 2
    (said,) = capsys.readouterr().err.splitlines()
    assert said.startswith(f"copyscope: {path}: ") and why in said


def test_a_static_program_gets_in(tmp_path: Path) -> None:
    path = tmp_path / "program"
    path.write_bytes(elf(1, 6, kind=3))
    path.chmod(0o755)
    # One that lies anywhere does not tell where its functions are.
    assert command.read([str(path), "a b"]).symbols == b""
    for words, why in (
        (["/nowhere/program"], "no such program"),
        ([str(path), "a\nb"], "line feeds"),
        ([str(path), ""], "empty"),
        ([str(path)] + ["x"] * 90, "at most 90"),
        ([str(path), "--"], "no command after the server"),
        (["/nowhere/program", "--", str(path)], "no such program"),
    ):
        with pytest.raises(UsageError, match=why):
            command.read(words)
    both = command.read([str(path), "7000", "--", str(path), "1"])
    assert (both.server, both.words) == ((str(path), "7000"), (str(path), "1"))
    assert both.server_program == both.program == path.read_bytes()
    assert both.line == [str(path), "7000", "--", str(path), "1"]
    os.truncate(path, command.PROGRAM_MAX_BYTES + 1)
    with pytest.raises(UsageError, match="at most 64 MiB"):
        command.read([str(path)])


def test_what_the_guest_is_told_of_a_command() -> None:
    assert job.of_command(["./talks", "64", "a b"]) == "network loopback\ncommand /command 64 a\x1fb\n"
    beside = job.of_command(["./talks", "1"], ["./serves", "7000"])
    assert beside == "network loopback\nserver /server 7000\ncommand /command 1\n"


@pytest.mark.parametrize("words", [["--size", "1K"], ["--topology", "nics"], ["--impl", "two_copy"]])
def test_options_of_our_traffic_mean_nothing_to_a_command(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert simulate_command.main([*words, "--", "true"]) == 2
    assert f"{words[0]}: not available for a command in a simulated machine" in capsys.readouterr().err


def test_rows_of_a_command_are_its_copies_and_its_own_memcpy() -> None:
    made = command_record()
    assert store.validate(made) == [] and made["verdict"]["valid"]
    (one,) = made["simulated"]["measurements"]
    assert (one["impl"], one["command"], one["delivered_bytes"]) == (None, ["./talks", "64 times"], 65536)
    read = {row["category"]: row["read_bytes_per_kib"] for row in one["accounts"]}
    assert read == {"copy_in": 1024, "gather": 1024, "copy_out": 1024}
    # 9 + 10 + 5 + 3 instructions; an idle CPU is not the command's.
    sides = {row["side"]: row["instructions_per_kib"] for row in one["sides"]}
    assert sides["command"] == 27 and sides["other"] == pytest.approx(9999 / 64, abs=1e-3)
    text = " ".join(" ".join(line.plain for line in simulated_lines(typed_boot(made).simulated, 100)).split())
    assert "./talks 64 times, SIMULATED: loopback, 64 KiB copied out of sockets, Linux 6.12.107" in text


def test_a_command_whose_bytes_nobody_read_is_not_taken_for_whole() -> None:
    made = command_record(command_output().replace("ffffffff81000300", "ffffffff81000400"))
    assert made["verdict"]["reasons"] == [
        "./talks 64 times: bytes that were copied out of sockets, at least one: 0 instead of 1"
    ]
