"""What can go wrong in the middle: everything ends, nothing stays, what was measured is kept."""

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
from copyscope import paths
from copyscope.record import store as records
from profiling import FRONT, RUN, SLOW, child_named, in_all, is_root, left_after_a_second, profile, traces
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
    """Progress says so, in a log with one line when the first segment begins; some are over soon."""
    assert run.stderr is not None
    assert any(": 1 of " in line for line in run.stderr), "ended before the first segment"
    time.sleep(1.2)


@pytest.mark.parametrize("seed", [0, 1, *map(in_all, (2, 3, 4))])
def test_sigkill_at_any_moment_leaves_nothing(seed: int) -> None:
    before = traces()
    # A relay has processes more.
    run = start("--duration", "3", "--threads", "2", "--impl", "relay_splice" if seed % 2 else "zerocopy")
    time.sleep(random.Random(seed).uniform(0.05, 2.5) * SLOW)
    run.kill()
    run.communicate(timeout=10 * SLOW)
    assert left_after_a_second(before) == []


@pytest.mark.parametrize("role", ["send", in_all("recv")])
def test_a_side_that_dies_is_named_and_the_rest_is_kept(role: str, tmp_path: Path) -> None:
    before = traces()
    run = start("--duration", "4", "--out", str(tmp_path))
    wait_until_it_measures(run)
    os.kill(wait_for_child(run, role), signal.SIGKILL)
    shown, _ = run.communicate(timeout=30 * SLOW)
    assert run.returncode == 1
    assert "INVALID" in shown
    (path,) = tmp_path.glob("*.json")
    kept = records.read(path)
    assert kept["run"]["segments"] and not kept["verdict"]["valid"]
    assert any(
        "SIGKILL" in reason or "reset" in reason or "closed" in reason for reason in kept["run"]["errors"]
    )
    assert left_after_a_second(before) == []


@pytest.mark.all
def test_a_receiver_that_stops_reading_ends_the_run_and_the_rest_is_kept(tmp_path: Path) -> None:
    before = traces()
    run = start("--duration", "30", "--out", str(tmp_path))
    wait_until_it_measures(run)
    stopped = wait_for_child(run, "recv")
    os.kill(stopped, signal.SIGSTOP)
    began = time.monotonic()
    shown, said = run.communicate(timeout=30 * SLOW)
    assert time.monotonic() - began < 15 * SLOW
    assert (run.returncode, "INVALID" in shown, "Traceback" in said) == (1, True, False)
    (path,) = tmp_path.glob("*.json")
    kept = records.read(path)
    assert kept["run"]["segments"] and not kept["verdict"]["valid"]
    assert kept["run"]["errors"][0] == f"receiver: no answer: process {stopped} is stopped (SIGSTOP)"
    assert left_after_a_second(before) == []


@pytest.mark.parametrize("number", [signal.SIGINT, in_all(signal.SIGHUP)])
def test_ctrl_c_keeps_what_was_measured(number: signal.Signals, tmp_path: Path) -> None:
    before = traces()
    run = start("--duration", "8", "--out", str(tmp_path))
    wait_until_it_measures(run)
    run.send_signal(number)
    shown, _ = run.communicate(timeout=30 * SLOW)
    assert run.returncode == 130
    assert "interrupted" in shown and "Traceback" not in shown
    (path,) = tmp_path.glob("*.json")
    kept = records.read(path)
    assert kept["run"]["interrupted"] and kept["run"]["segments"]
    assert left_after_a_second(before) == []


def test_two_profiles_at_once() -> None:
    before = traces()
    runs = [start("--messages", "50") for _ in range(2)]
    for run in runs:
        shown, said = run.communicate(timeout=60 * SLOW)
        assert "zero_copy" in shown, said
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


def test_an_out_directory_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = profile("--out", str(tmp_path / "file" / "below"), check=1)
    assert done.stderr.count("\n") == 1 and "--out" in done.stderr


def without_root(front: str) -> subprocess.CompletedProcess[str]:
    argv = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups", front, "run", "--impl", "one_copy"]
    return subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30 * SLOW)


def test_without_root_it_says_what_to_type() -> None:
    done = without_root(FRONT)
    # Of a Python below /root it is not even asked.
    if "ermission denied" not in done.stderr and "not there for this user" not in done.stderr:
        assert done.returncode == 1 and done.stderr.count("\n") == 1
        assert "sudo copyscope run --impl one_copy" in done.stderr


def test_an_interpreter_that_is_out_of_reach_is_not_one_that_is_missing() -> None:
    # Not in tmp_path: pytest keeps that from every other user.
    with tempfile.TemporaryDirectory() as place:
        tree = Path(place)
        tree.chmod(0o755)
        for name in ("bin", "closed", ".venv/bin"):
            (tree / name).mkdir(parents=True, mode=0o700 if name == "closed" else 0o755)
        shutil.copy(FRONT, tree / "bin" / "copyscope")
        shutil.copy(sys.executable, tree / "closed" / "python3")
        (tree / ".venv" / "bin" / "python3").symlink_to(tree / "closed" / "python3")
        (tree / ".venv" / ".package").touch()
        done = without_root(f"{tree}/bin/copyscope")
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "/python3: not there for this user: call copyscope with sudo" in done.stderr


def test_memlock_too_low_says_the_arithmetic() -> None:
    argv = ["prlimit", "--memlock=65536:65536", *RUN, "--impl", "zerocopy", "--size", "1M"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=30 * SLOW)
    assert done.returncode == 2
    assert "256 + 2 pages = 1032 KiB, the limit is 64 KiB" in done.stderr and done.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("tool", "words"),
    [
        ("run", "--quiet --impl one_copy --messages 23"),
        in_all("watch", f"--quiet --pid {{pid}} --duration 0.5 {' '.join(SAMPLED)}"),
        in_all("doctor", ""),
    ],
    ids=["own traffic", "a program", "doctor"],
)
def test_without_standard_output_all_is_measured_and_kept(tool: str, words: str, tmp_path: Path) -> None:
    """No file of ours takes the number of what was closed: what is printed would get into it."""
    kept = tmp_path / "kept.json"
    options = f"{words.format(pid=os.getpid())} --json {shlex.quote(str(kept))}"
    program = shlex.join([str(paths.ROOT / "bin" / "copyscope"), tool])
    done = subprocess.run(
        ["sh", "-c", f"exec {program} {options} >&-"],
        stderr=subprocess.PIPE, text=True, check=False, timeout=60 * SLOW,
    )  # fmt: skip
    assert done.stderr == "" and kept.exists()
    made = json.loads(kept.read_text())
    assert done.returncode == (not made["works"] if tool == "doctor" else not made["verdict"]["valid"])
