# SPDX-License-Identifier: GPL-2.0-only
"""Starting perf: programs on PATH that behave like an old, wrapped or broken perf."""

import os
import shutil
from pathlib import Path

import pytest
from copyscope.run import perf_stat
from copyscope.run.perf_stat import PerfStat

pytestmark = pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv is not installed")

# A program like perf: acknowledges each command of --control, and prints counts to --log-fd on SIGINT.
STAND_IN = """#!/usr/bin/env python3
import os, signal, sys
arguments = sys.argv[1:]
if "-j" in arguments and {old}:
    sys.exit("  Error: unknown switch `j'")
control, ack = map(int, arguments[arguments.index("--control") + 1].removeprefix("fd:").split(","))
log = int(arguments[arguments.index("--log-fd") + 1])
def finish(*_):
    os.write(log, {counts!r})
    os._exit(0)
signal.signal(signal.SIGINT, finish)
while os.read(control, 64):
    os.write(ack, b"ack\\n\\0")
"""


def put_perf_on_path(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    perf = folder / "perf"
    perf.write_text(text)
    perf.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")


def count() -> tuple[int | None, str | None]:
    with PerfStat(os.getpid()) as counting:
        counting.start()
        counting.wait_ready()
        counting.enable()
        counting.disable()
        cycles = counting.finish()["cycles"]
    return cycles.value, cycles.reason


def test_counts_are_read_from_json(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = (
        b'{"counter-value" : "7.000000", "unit" : "", "event" : "cycles",'
        b' "event-runtime" : 5, "pcnt-running" : 100.00}\n'
    )
    put_perf_on_path(tmp_path, monkeypatch, STAND_IN.format(old=False, counts=line))
    assert count() == (7, None)


def test_perf_without_json_is_started_again_for_csv(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_perf_on_path(tmp_path, monkeypatch, STAND_IN.format(old=True, counts=b"7,,cycles,5,100.00,,\n"))
    assert count() == (7, None)


@pytest.mark.skipif(os.geteuid() != 0, reason="there is nothing to give up")
def test_perf_is_started_again_with_more_privileges_if_counting_needs_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some kernels require CAP_SYS_ADMIN (bit 21) for every event."""
    refuses = """mask=$(sed -n 's/^CapEff:[[:space:]]*//p' /proc/self/status)
[ $(( 0x$mask >> 21 & 1 )) = 1 ] || { echo "No permission to enable task-clock event." >&2; exit 255; }
"""
    put_perf_on_path(
        tmp_path,
        monkeypatch,
        f'#!/bin/sh\n{refuses}exec {tmp_path}/perf.py "$@"\n',
    )
    (tmp_path / "perf.py").write_text(STAND_IN.format(old=False, counts=b"9,,cycles,5,100.00,,\n"))
    (tmp_path / "perf.py").chmod(0o755)
    assert count() == (9, None)


def test_the_perf_of_another_kernel_is_used_if_the_wrapper_finds_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(perf_stat, "UBUNTU_BUILDS", (f"{tmp_path}/tools/*/perf",))
    put_perf_on_path(
        tmp_path, monkeypatch, "#!/bin/sh\necho WARNING: perf not found for kernel 6.8.0 >&2\nexit 2\n"
    )
    value, reason = count()
    assert value is None and reason is not None and "linux-tools-$(uname -r)" in reason
    other = tmp_path / "tools" / "6.8.0-40-generic"
    other.mkdir(parents=True)
    (other / "perf").write_text(STAND_IN.format(old=False, counts=b"8,,cycles,5,100.00,,\n"))
    (other / "perf").chmod(0o755)
    assert count() == (8, None)


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("#!/bin/sh\nexit 0\n", "without a message"),
        ('#!/bin/sh\necho "  Error: unknown option \\`control\'" >&2; exit 129\n', "too old"),
        (STAND_IN.format(old=False, counts=b""), "without a message"),
        (STAND_IN.format(old=False, counts=b"garbage\n"), "garbage"),
        (
            STAND_IN.replace("while os.read(control, 64):", "os.read(control, 64)\nif True:"),
            "did not acknowledge",
        ),
    ],
)
def test_a_broken_perf_gives_a_reason_in_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, words: str
) -> None:
    monkeypatch.setattr(perf_stat, "ACK_TIMEOUT_S", 0.2)
    put_perf_on_path(tmp_path, monkeypatch, script.replace("{old}", "False").replace("{counts!r}", "b''"))
    value, reason = count()
    assert value is None and reason is not None and words in reason and "\n" not in reason


def test_without_setpriv_the_reason_says_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert count() == (None, "setpriv: not installed: run tools/deps.sh run")


def test_a_missing_tracepoint_has_a_reason(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def reason() -> str | None:
        return perf_stat.why_no_tracepoint("tlb:tlb_flush")

    tracefs = tmp_path / "events"
    machine = {"proc/filesystems": "nodev\tsysfs\nnodev\ttracefs", "sys/kernel/security/lockdown": ""}
    monkeypatch.setattr(perf_stat, "read_text", lambda _, path: machine[path])
    monkeypatch.setattr(perf_stat, "TRACEFS", (tmp_path / "elsewhere", tracefs))
    assert "tracefs is not mounted: mount -t" in str(reason())
    machine["proc/filesystems"] = "nodev\tsysfs"
    assert reason() == "tracepoint tlb:tlb_flush: this kernel has no tracefs (CONFIG_TRACING)"
    tracefs.mkdir()
    assert reason() == "this kernel has no tracepoint tlb:tlb_flush"
    number = tracefs / "tlb" / "tlb_flush" / "id"
    number.mkdir(parents=True)  # a directory, because root can read every file
    assert reason() == f"tracepoint tlb:tlb_flush: {tracefs}: Is a directory: run as root"
    machine["sys/kernel/security/lockdown"] = "none integrity [confidentiality]"
    assert str(reason()).endswith(": lockdown=confidentiality")
    number.rmdir()
    number.write_text("7\n")
    assert reason() is None
