# SPDX-License-Identifier: GPL-2.0-only
"""Failures during a run: every program exits, nothing remains, and finished measurements are kept."""

import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from copyscope.base import paths
from copyscope.record import store
from profiling import COPYSCOPE, RUN, SLOW, child_named, in_all, is_root, left_after_a_second, profile, traces
from programs import SAMPLED

pytestmark = [pytest.mark.live, pytest.mark.skipif(not is_root(), reason="needs root to load BPF")]


def start(*options: str) -> subprocess.Popen[str]:
    argv = [*RUN, *([] if "--impl" in options else ["--impl", "zerocopy"]), *options]
    return subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def wait_for_child(parent: subprocess.Popen[str], role: str) -> int:
    deadline = time.monotonic() + 10 * SLOW
    while time.monotonic() < deadline:
        pid = child_named(parent.pid, role)
        if pid is not None:
            return pid
        time.sleep(0.02)
    raise AssertionError(f"no {role} was started")


def wait_until_it_measures(run: subprocess.Popen[str]) -> None:
    """Wait for the progress line of the first segment, and a little longer."""
    assert run.stderr is not None
    assert any(": 1 of " in line for line in run.stderr), "ended before the first segment"
    time.sleep(1.2)


@pytest.mark.parametrize("seed", [1, *map(in_all, (0, 2, 3, 4))])
def test_sigkill_at_any_moment_leaves_nothing(seed: int) -> None:
    before = traces()
    # A relay starts further processes.
    run = start("--duration", "3", "--threads", "2", "--impl", "relay_splice" if seed % 2 else "zerocopy")
    time.sleep(random.Random(seed).uniform(0.05, 2.5) * SLOW)
    run.kill()
    run.communicate(timeout=60 * SLOW)
    assert left_after_a_second(before) == []


@pytest.mark.parametrize("role", ["send", in_all("recv")])
def test_a_killed_sender_or_receiver_is_named_and_measurements_are_kept(role: str, tmp_path: Path) -> None:
    before = traces()
    run = start("--duration", "4", "--out", str(tmp_path))
    wait_until_it_measures(run)
    os.kill(wait_for_child(run, role), signal.SIGKILL)
    output, _ = run.communicate(timeout=30 * SLOW)
    assert run.returncode == 1
    assert "INVALID" in output
    (path,) = tmp_path.glob("*.json")
    record = store.read_document(path)
    assert record["run"]["segments"] and not record["verdict"]["valid"]
    assert any(
        "SIGKILL" in reason or "reset" in reason or "closed" in reason for reason in record["run"]["errors"]
    )
    assert left_after_a_second(before) == []


@pytest.mark.all
def test_a_stopped_receiver_ends_the_run_and_measurements_are_kept(tmp_path: Path) -> None:
    before = traces()
    run = start("--duration", "30", "--out", str(tmp_path))
    wait_until_it_measures(run)
    stopped = wait_for_child(run, "recv")
    os.kill(stopped, signal.SIGSTOP)
    began = time.monotonic()
    output, errors = run.communicate(timeout=30 * SLOW)
    assert time.monotonic() - began < 15 * SLOW
    assert (run.returncode, "INVALID" in output, "Traceback" in errors) == (1, True, False)
    (path,) = tmp_path.glob("*.json")
    record = store.read_document(path)
    assert record["run"]["segments"] and not record["verdict"]["valid"]
    assert record["run"]["errors"][0] == f"receiver: no answer: process {stopped} is stopped (SIGSTOP)"
    assert left_after_a_second(before) == []


@pytest.mark.parametrize("number", [signal.SIGINT, in_all(signal.SIGHUP)])
def test_measurements_are_kept_on_ctrl_c(number: signal.Signals, tmp_path: Path) -> None:
    before = traces()
    run = start("--duration", "8", "--out", str(tmp_path))
    wait_until_it_measures(run)
    run.send_signal(number)
    output, _ = run.communicate(timeout=30 * SLOW)
    assert run.returncode == 130
    assert "interrupted" in output and "Traceback" not in output
    (path,) = tmp_path.glob("*.json")
    record = store.read_document(path)
    assert record["run"]["interrupted"] and record["run"]["segments"]
    assert left_after_a_second(before) == []


def test_two_runs_at_once_leave_nothing() -> None:
    before = traces()
    runs = [start("--messages", "50") for _ in range(2)]
    for run in runs:
        output, errors = run.communicate(timeout=60 * SLOW)
        assert "zero_copy" in output, errors
    assert left_after_a_second(before) == []


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8k", "tmpfs", str(tmp_path)], check=True)
    yield tmp_path
    subprocess.run(["umount", str(tmp_path)], check=True)


def test_a_full_disk_costs_the_file_but_not_the_table(tiny_disk: Path) -> None:
    done = profile("-v", "--impl", "one_copy", "--messages", "23", "--out", str(tiny_disk), check=None)
    assert "copy into the kernel" in done.stdout
    assert "No space left on device" in done.stderr
    assert list(tiny_disk.glob("*")) == []


def test_an_impossible_out_directory_is_refused_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = profile("--out", str(tmp_path / "file" / "below"), check=1)
    assert done.stderr.count("\n") == 1 and "--out" in done.stderr


def without_root(front: str) -> subprocess.CompletedProcess[str]:
    argv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", front, "run", "--impl", "one_copy"]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30 * SLOW)


def test_without_root_the_error_shows_the_command_with_sudo() -> None:
    done = without_root(COPYSCOPE)
    # An interpreter below /root cannot be started at all by another user.
    if "ermission denied" not in done.stderr and "not readable for this user" not in done.stderr:
        assert done.returncode == 1 and done.stderr.count("\n") == 1
        assert "bin/copyscope run --impl one_copy" in done.stderr


def test_an_unreachable_interpreter_is_not_reported_as_missing() -> None:
    # Not in tmp_path, because pytest denies other users access to it.
    with tempfile.TemporaryDirectory() as directory:
        tree = Path(directory)
        tree.chmod(0o755)
        for name in ("bin", "closed", ".venv/bin"):
            (tree / name).mkdir(parents=True, mode=0o700 if name == "closed" else 0o755)
        shutil.copy(COPYSCOPE, tree / "bin" / "copyscope")
        shutil.copy(sys.executable, tree / "closed" / "python3")
        (tree / ".venv" / "bin" / "python3").symlink_to(tree / "closed" / "python3")
        (tree / ".venv" / ".package").touch()
        done = without_root(f"{tree}/bin/copyscope")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "/python3: not readable for this user; call copyscope with sudo" in done.stderr


def test_a_low_memlock_limit_is_refused_with_the_needed_size() -> None:
    argv = ["prlimit", "--memlock=65536:65536", *RUN, "--impl", "zerocopy", "--size", "1M"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30 * SLOW)
    assert done.returncode == 2
    assert (
        "256 + 2 pages = 1032 KiB of locked memory, the limit is 64 KiB" in done.stderr
        and done.stderr.count("\n") == 1
    )


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("run", "--quiet --impl one_copy --messages 23"),
        in_all("watch", f"--quiet --pid {{pid}} --duration 0.5 {' '.join(SAMPLED)}"),
        in_all("doctor", ""),
    ],
    ids=["own traffic", "a program", "doctor"],
)
def test_with_standard_output_closed_the_record_is_kept(tool: str, words: str, tmp_path: Path) -> None:
    """No file may get the number of the closed standard output, else the screen would be written into it."""
    path = tmp_path / "kept.json"
    options = f"{words.format(pid=os.getpid())} --json {shlex.quote(str(path))}"
    program = shlex.join([str(paths.ROOT / "bin" / "copyscope"), tool])
    done = subprocess.run(
        ["sh", "-c", f"exec {program} {options} >&-"],
        stderr=subprocess.PIPE, text=True, check=False, timeout=60 * SLOW,
    )  # fmt: skip
    assert done.stderr == "" and path.exists()
    document = json.loads(path.read_text())
    assert done.returncode == (
        not document["works"] if tool == "doctor" else not document["verdict"]["valid"]
    )
