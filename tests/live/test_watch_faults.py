# SPDX-License-Identifier: GPL-2.0-only
"""Errors with watched programs: each is one line, and finished measurements are kept."""

import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from profiling import RUN, SLOW, WATCH, await_line, in_all, is_root, left_after_a_second, profile, traces
from programs import SAMPLED, STRETCH, bytes_of, iperf3_server, missing, running, stretched, watch, wrong

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
    pytest.mark.skipif(missing("iperf3") is not None, reason="needs iperf3: tools/deps.sh test"),
]

CGROUP = Path("/sys/fs/cgroup")


def client(port: int, seconds: float, *more: str) -> list[str]:
    return ["iperf3", "-c", "127.0.0.1", "-p", str(port), "-t", str(round(seconds)), *more]


@pytest.mark.parametrize(
    ("options", "status", "error"),
    [
        (["--pid", "4194301"], 1, "--pid 4194301: no such process"),
        (["--pid", "2"], 1, "is a kernel thread"),
        (["--pid", "x"], 2, "--pid x: not a process id"),
        (["--cgroup", "no/such"], 1, "--cgroup no/such: no such directory"),
        (["--cgroup", "/tmp"], 1, "not a cgroup v2"),
        (["--netns", "no-such", "--pid", "1"], 1, "--netns no-such: no such namespace"),
        (["--netns", "/etc/passwd", "--pid", "1"], 1, "--netns /etc/passwd: not a network namespace"),
        (["--netns", "4194301", "--pid", "1"], 1, "--netns 4194301: no such process"),
        (["--pid", "1", "--json", "/no/such/x.json"], 1, "--json /no/such/x.json: no such directory"),
        (["--netns", "1"], 2, "nothing to watch; give a name, a pid, --unit"),
        (["--", "/no/such/program"], 127, "/no/such/program: could not be started (No such file"),
        in_all(["--", "/etc/passwd"], 126, "/etc/passwd: could not be started (Permission denied)"),
    ],
)
def test_each_error_of_watch_is_one_line(options: list[str], status: int, error: str) -> None:
    before = traces()
    done = profile(*options, verb="watch", check=status)
    assert done.stderr.count("\n") == 1 and error in done.stderr and "Traceback" not in done.stderr
    assert left_after_a_second(before) == []


NOBODY = ["setpriv", "--reuid=65534", "--clear-groups", "--inh-caps=+dac_read_search"]
# Root without the capabilities to load BPF programs, as in a container.
BOUNDED = ["setpriv", "--bounding-set=-bpf,-perfmon,-sys_admin", "--inh-caps=-bpf,-perfmon,-sys_admin"]


@pytest.mark.parametrize(
    ("prefix", "error"),
    [
        (
            [*NOBODY, "--ambient-caps=+dac_read_search"],
            "needs root to load BPF; run sudo bin/copyscope watch",
        ),
        (BOUNDED, "Operation not permitted: needs root, or CAP_BPF and CAP_PERFMON"),
        (["unshare", "--pid", "--fork", "--mount-proc"], "copyscope runs inside a container"),
    ],
    ids=["nobody", "without capabilities", "inside a container"],
)
def test_missing_permission_is_an_error_of_one_line(prefix: list[str], error: str) -> None:
    argv = [*prefix, *WATCH, "--quiet", "--pid", "1", "--duration", "1"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60 * SLOW)
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("\n") == 1 and error in done.stderr


def test_our_own_traffic_is_refused_in_a_container_before_anything_is_set_up() -> None:
    """In a pid namespace the kernel knows sender and receiver by other pids, so all counts would be 0."""
    argv = ["unshare", "--pid", "--fork", "--mount-proc", *RUN, "--quiet", "--impl", "one_copy"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60 * SLOW)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("copyscope run: pid namespace: copyscope runs inside a container")
    assert done.stderr.count("\n") == 1


@pytest.mark.all
def test_the_id_of_a_thread_is_refused_with_its_process() -> None:
    seconds = round(9 * SLOW)
    thread = f"threading.Thread(target=time.sleep, args=({seconds},)).start()"
    threads = f"import threading, time; {thread}; time.sleep({seconds})"
    with running(["python3", "-c", threads]) as process:
        tasks = Path(f"/proc/{process.pid}/task")
        while len(thread_ids := [int(entry.name) for entry in tasks.iterdir()]) < 2:
            time.sleep(0.05)
        youngest = max(thread_ids)
        done = profile("--pid", str(youngest), verb="watch", check=1)
    assert f"use --pid {process.pid}" in done.stderr


def test_a_process_in_a_pid_namespace_is_watched_by_its_outer_pid() -> None:
    """The first process of a pid namespace is pid 1 there. It is watched by its pid outside."""
    with running(["unshare", "--pid", "--fork", "--kill-child", "sleep", str(20 * SLOW)]) as outer:
        time.sleep(0.3 * SLOW)
        inner = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()[0]
        record = watch("--pid", inner, "--duration", "0.5", check=None)
        os.kill(int(inner), signal.SIGKILL)
    assert record["target"]["pids"] == [{"pid": int(inner), "comm": "sleep"}]


@pytest.mark.all
def test_the_exit_status_is_passed_on_and_a_run_without_bytes_is_invalid() -> None:
    record = watch("--", "sh", "-c", "sleep 0.3; exit 7", check=7)
    assert record["target"]["status"] == 7
    assert record["verdict"]["reasons"][0].startswith(
        "nothing was sent or received over TCP, MPTCP, UDP or UNIX sockets by sh in "
    )


@pytest.mark.all
def test_a_program_that_exits_during_the_run_has_a_ledger(tmp_path: Path) -> None:
    record_path = tmp_path / "record.json"
    with iperf3_server() as port, running(client(port, 60 * SLOW)) as process:
        time.sleep(0.3 * SLOW)
        argv = [*WATCH, *SAMPLED, "--pid", str(process.pid), "--json", str(record_path)]
        run = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        await_line(run.stderr, "watching iperf3")
        time.sleep(1.5 * SLOW)
        process.terminate()
        process.wait()
        _, errors = run.communicate(timeout=30 * SLOW)
    record = json.loads(record_path.read_text())
    assert run.returncode == 0 or wrong(record) == [], errors
    assert record["target"]["ended"] == "the program ended"
    assert record["run"]["measured_s"] < 10 * SLOW and record["tx_bytes"] > 1 << 26


@pytest.mark.all
@pytest.mark.parametrize("follow", [True, False])
def test_children_are_followed_unless_no_follow(follow: bool) -> None:
    with iperf3_server() as port:
        shell = f"{shlex.join(client(port, 1 if SLOW == 1 else 2 * SLOW))} & wait"
        record = watch(*["--no-follow"] * (not follow), "--", "sh", "-c", shell, check=None)
    assert (record["target"]["forks"] > 0) == follow
    assert (bytes_of(record, "copy_in") > 1 << 24) == follow
    assert all(follow is False and reason.startswith("nothing was sent") for reason in wrong(record))


@pytest.mark.all
def test_a_child_is_watched_after_its_command_exited() -> None:
    with iperf3_server() as port:
        record = watch("--", "sh", "-c", f"{shlex.join(client(port, 3 * SLOW))} &")
    # On a busy machine half of the time passes between segments.
    assert record["run"]["measured_s"] > 1 and bytes_of(record, "copy_in") > 1 << 24


@pytest.mark.all
def test_comm_includes_processes_that_start_later() -> None:
    with iperf3_server() as port:
        argv = [*WATCH, *SAMPLED, "--comm", "iperf3", "--duration", stretched(2), "--json", "-"]
        run = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        await_line(run.stderr, "waiting for its first bytes")
        with running(client(port, 10 * SLOW)) as late_client:
            output, _ = run.communicate(timeout=30 * SLOW)
        assert f'"pid": {late_client.pid}' in output


@pytest.fixture
def cgroup() -> Iterator[Path]:
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    root = next((Path(fields[1]) for fields in mounts if fields[2] == "cgroup2"), None)
    if root is None:
        pytest.skip("no cgroup v2 is mounted here")
    path = root / f"copyscope-test-{os.getpid()}"
    path.mkdir()
    yield path
    deadline = time.monotonic() + 5 * SLOW
    while time.monotonic() < deadline:
        try:
            path.rmdir()
            return
        except OSError:
            time.sleep(0.05)
    raise AssertionError(f"{path}: still in use")


def test_only_processes_of_the_cgroup_are_counted(cgroup: Path) -> None:
    """copyscope itself runs in this cgroup and is not counted, as if both were started in one session."""
    # The kernel paces (--fq-rate). iperf3 (-b) would send faster after a delay to catch up.
    enter_cgroup = ["sh", "-c", f'echo $$ >{cgroup}/cgroup.procs; exec "$@"', "sh"]
    with (
        iperf3_server() as port,
        iperf3_server() as other_port,
        running([*enter_cgroup, *client(port, 20 * SLOW, "--fq-rate", f"{800 / SLOW:.0f}M")]) as inside,
        running(client(other_port, 20 * SLOW, "-Z")),
    ):
        time.sleep(0.7 * STRETCH)
        watch_words = [*enter_cgroup, *WATCH, "--quiet", *SAMPLED, "--cgroup", str(cgroup)]
        argv = [*watch_words, "--duration", stretched(2), "--json", "-"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60 * SLOW)
    record = json.loads(done.stdout)
    assert wrong(record) == [], done.stderr
    assert [row["pid"] for row in record["target"]["pids"]] == [inside.pid]
    assert {segment["sides"]["target"]["processes"] for segment in record["run"]["segments"]} == {1}
    assert {row["syscall"] for row in record["volume"] if row["direction"] == "send"} == {"write"}
    assert {row["peer"] for row in record["connections"]} == {f"127.0.0.1:{port}"}
    assert bytes_of(record, "pin") == 0
    assert record["throughput_gbps"]["unprobed"] == pytest.approx(0.8 / SLOW, rel=0.25)


# Sends to itself until it reads a line. Then prints the bytes sent and received.
BUSY = """
import socket, sys, threading
server = socket.create_server(("127.0.0.1", 0))
client = socket.create_connection(server.getsockname())
peer, _ = server.accept()
sent, arrived, told = 0, [], []
def receive():
    arrived.append(sum(map(len, iter(lambda: peer.recv(1 << 17), b""))))
reader = threading.Thread(target=receive)
reader.start()
threading.Thread(target=lambda: told.append(sys.stdin.readline())).start()
while not told:
    client.sendall(bytes(1 << 16))
    sent += 1 << 16
client.shutdown(socket.SHUT_WR)
reader.join()
print(sent, *arrived)
"""
WATCHED_TIMES = 3


@pytest.mark.all
def test_attaching_and_detaching_does_not_disturb_a_program() -> None:
    """A busy sender continues and loses no byte while copyscope attaches and detaches repeatedly.

    `make bench BENCH=watch` measures how much it slows down.
    """
    pipe = subprocess.PIPE
    with subprocess.Popen(["python3", "-c", BUSY], stdin=pipe, stdout=pipe, text=True) as busy:
        time.sleep(0.5 * SLOW)
        for _ in range(WATCHED_TIMES):
            done = profile(
                "-v", *SAMPLED, "--pid", str(busy.pid), "--duration", "0.5", verb="watch", check=None
            )
            assert "goodput" in done.stdout, done.stderr
        output, _ = busy.communicate("enough\n", timeout=60 * SLOW)
    assert busy.returncode == 0
    sent, arrived = map(int, output.split())
    assert sent == arrived > (1 << 28) / SLOW
