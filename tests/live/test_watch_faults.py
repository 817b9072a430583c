"""What can go wrong with somebody else's program: one line each, and what was measured is kept."""

import json
import os
import shlex
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from profiling import RUN, SLOW, WATCH, in_all, is_root, left_after_a_second, profile, traces
from programs import SAMPLED, STRETCH, bytes_of, iperf3_server, missing, running, stretched, watch, wrong

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
    pytest.mark.skipif(missing("iperf3") is not None, reason="needs iperf3: tools/deps.sh test"),
]

CGROUP = Path("/sys/fs/cgroup")


def client(port: int, seconds: float, *more: str) -> list[str]:
    return ["iperf3", "-c", "127.0.0.1", "-p", str(port), "-t", str(round(seconds)), *more]


# One that is there before copyscope is must last until it has begun.


@pytest.mark.parametrize(
    ("options", "status", "said"),
    [
        (["--pid", "4194301"], 1, "--pid: 4194301: no such process"),
        (["--pid", "2"], 1, "is a kernel thread"),
        (["--pid", "x"], 2, "--pid: x: not a process id"),
        (["--cgroup", "no/such"], 1, "--cgroup: no/such: no such directory"),
        (["--cgroup", "/tmp"], 1, "not a cgroup of version 2"),
        (["--netns", "no-such", "--pid", "1"], 1, "--netns: no-such: no such namespace"),
        (["--netns", "/etc/passwd", "--pid", "1"], 1, "--netns: /etc/passwd: not a network namespace"),
        (["--netns", "4194301", "--pid", "1"], 1, "--netns: 4194301: no such process"),
        (["--pid", "1", "--json", "/no/such/x.json"], 1, "--json: /no/such/x.json: no such directory"),
        (["--netns", "1"], 2, "nothing to watch: give a name, a pid, --unit"),
        (["--", "/no/such/program"], 127, "/no/such/program: No such file or directory"),
        (["--", "/etc/passwd"], 126, "/etc/passwd: Permission denied"),
    ],
)
def test_one_line_says_it(options: list[str], status: int, said: str) -> None:
    before = traces()
    done = profile(*options, verb="watch", check=status)
    assert done.stderr.count("\n") == 1 and said in done.stderr and "Traceback" not in done.stderr
    assert left_after_a_second(before) == []


NOBODY = ["setpriv", "--reuid=65534", "--clear-groups", "--inh-caps=+dac_read_search"]
# Root as in a container: it may not load BPF.
BOUNDED = ["setpriv", "--bounding-set=-bpf,-perfmon,-sys_admin", "--inh-caps=-bpf,-perfmon,-sys_admin"]


@pytest.mark.parametrize(
    ("prefix", "said"),
    [
        ([*NOBODY, "--ambient-caps=+dac_read_search"], "needs root to load BPF: sudo copyscope watch"),
        (BOUNDED, "Operation not permitted: needs root, or CAP_BPF and CAP_PERFMON"),
        (["unshare", "--pid", "--fork", "--mount-proc"], "copyscope runs inside a container"),
    ],
    ids=["nobody", "without capabilities", "inside a container"],
)
def test_no_permission_is_one_line(prefix: list[str], said: str) -> None:
    argv = [*prefix, *WATCH, "--quiet", "--pid", "1", "--duration", "1"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60 * SLOW)
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("\n") == 1 and said in done.stderr


def test_our_own_traffic_is_refused_in_a_container_before_anything_is_set_up() -> None:
    """Its two sides would have pids that the kernel does not know: all counts were zero, without a cause."""
    argv = ["unshare", "--pid", "--fork", "--mount-proc", *RUN, "--quiet", "--impl", "one_copy"]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60 * SLOW)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("copyscope: pid namespace: copyscope runs inside a container")
    assert done.stderr.count("\n") == 1


@pytest.mark.all
def test_a_thread_names_its_process() -> None:
    seconds = round(9 * SLOW)
    thread = f"threading.Thread(target=time.sleep, args=({seconds},)).start()"
    threads = f"import threading, time; {thread}; time.sleep({seconds})"
    with running(["python3", "-c", threads]) as process:
        tasks = Path(f"/proc/{process.pid}/task")
        while len(found := [int(entry.name) for entry in tasks.iterdir()]) < 2:
            time.sleep(0.05)
        youngest = max(found)
        done = profile("--pid", str(youngest), verb="watch", check=1)
    assert f"use --pid {process.pid}" in done.stderr


def test_a_pid_of_a_container_is_found_here() -> None:
    """The first process of a pid namespace of its own is pid 1 there, which is somebody else here."""
    with running(["unshare", "--pid", "--fork", "--kill-child", "sleep", str(20 * SLOW)]) as outer:
        time.sleep(0.3 * SLOW)
        inner = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()[0]
        record = watch("--pid", inner, "--duration", "0.5", check=None)
        os.kill(int(inner), signal.SIGKILL)
    assert record["target"]["pids"] == [{"pid": int(inner), "comm": "sleep"}]


def test_the_exit_status_is_passed_on_and_silence_is_said() -> None:
    record = watch("--", "sh", "-c", "sleep 0.3; exit 7", check=7)
    assert record["target"]["status"] == 7
    assert record["verdict"]["reasons"][0].startswith(
        "nothing was sent or received over TCP, MPTCP, UDP or UNIX sockets by sh in "
    )


def test_a_program_that_ends_in_the_middle_keeps_its_ledger(tmp_path: Path) -> None:
    kept = tmp_path / "record.json"
    with iperf3_server() as port, running(client(port, 60 * SLOW)) as process:
        time.sleep(0.3 * SLOW)
        argv = [*WATCH, *SAMPLED, "--pid", str(process.pid), "--json", str(kept)]
        run = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        assert run.stderr is not None and "attaching" in run.stderr.readline()
        assert "watching iperf3" in run.stderr.readline()
        time.sleep(1.5 * SLOW)
        process.terminate()
        process.wait()
        _, said = run.communicate(timeout=30 * SLOW)
    record = json.loads(kept.read_text())
    assert run.returncode == 0 or wrong(record) == [], said
    assert record["target"]["ended"] == "the program ended"
    assert record["run"]["measured_s"] < 10 * SLOW and record["tx_bytes"] > 1 << 26


@pytest.mark.parametrize("follow", [True, in_all(False)])
def test_children_are_followed_unless_not_wanted(follow: bool) -> None:
    with iperf3_server() as port:
        shell = f"{shlex.join(client(port, 1 if SLOW == 1 else 2 * SLOW))} & wait"
        record = watch(*["--no-follow"] * (not follow), "--", "sh", "-c", shell, check=None)
    assert (record["target"]["forks"] > 0) == follow
    assert (bytes_of(record, "copy_in") > 1 << 24) == follow
    assert all(follow is False and reason.startswith("nothing was sent") for reason in wrong(record))


@pytest.mark.all
def test_a_command_that_leaves_its_work_to_a_child_is_watched_on() -> None:
    with iperf3_server() as port:
        record = watch("--", "sh", "-c", f"{shlex.join(client(port, 3 * SLOW))} &")
    # On a busy machine half of the time is between segments.
    assert record["run"]["measured_s"] > 1 and bytes_of(record, "copy_in") > 1 << 24


@pytest.mark.all
def test_a_name_includes_those_that_come_later() -> None:
    with iperf3_server() as port:
        argv = [*WATCH, *SAMPLED, "--comm", "iperf3", "--duration", stretched(2), "--json", "-"]
        run = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert run.stderr is not None and "s in all" in run.stderr.readline()
        assert "watching comm iperf3 for " in run.stderr.readline()
        with running(client(port, 10 * SLOW)) as late:
            shown, _ = run.communicate(timeout=30 * SLOW)
        assert f'"pid": {late.pid}' in shown


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


def test_a_cgroup_is_counted_and_nobody_beside_it(cgroup: Path) -> None:
    """Nor copyscope, which runs in it, too, as in the session of whoever started both."""
    # The kernel paces, which never makes up for lost time, as iperf3 does that was kept waiting (-b).
    into = ["sh", "-c", f'echo $$ >{cgroup}/cgroup.procs; exec "$@"', "sh"]
    with (
        iperf3_server() as port,
        iperf3_server() as other_port,
        running([*into, *client(port, 20 * SLOW, "--fq-rate", f"{800 / SLOW:.0f}M")]) as inside,
        running(client(other_port, 20 * SLOW, "-Z")),
    ):
        time.sleep(0.7 * STRETCH)
        us = [*into, *WATCH, "--quiet", *SAMPLED, "--cgroup", str(cgroup)]
        argv = [*us, "--duration", stretched(2), "--json", "-"]
        done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60 * SLOW)
    record = json.loads(done.stdout)
    assert wrong(record) == [], done.stderr
    assert [row["pid"] for row in record["target"]["pids"]] == [inside.pid]
    assert {segment["sides"]["target"]["processes"] for segment in record["run"]["segments"]} == {1}
    assert {row["syscall"] for row in record["volume"] if row["direction"] == "send"} == {"write"}
    assert {row["peer"] for row in record["connections"]} == {f"127.0.0.1:{port}"}
    assert bytes_of(record, "pin") == 0
    assert record["throughput_gbps"]["unprobed"] == pytest.approx(0.8 / SLOW, rel=0.25)


# Sends to itself until it is told to end; then says what was sent, and what arrived.
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
TURNS = 3


@pytest.mark.all
def test_attaching_and_detaching_breaks_nothing() -> None:
    """On and off a busy sender, again and again: it goes on, and its bytes arrive.

    How much slower it goes meanwhile: make bench BENCH=watch.
    """
    pipe = subprocess.PIPE
    with subprocess.Popen(["python3", "-c", BUSY], stdin=pipe, stdout=pipe, text=True) as busy:
        time.sleep(0.5 * SLOW)
        for _ in range(TURNS):
            done = profile(
                "-v", *SAMPLED, "--pid", str(busy.pid), "--duration", "0.5", verb="watch", check=None
            )
            assert "goodput" in done.stdout, done.stderr
        said, _ = busy.communicate("enough\n", timeout=60 * SLOW)
    assert busy.returncode == 0
    sent, arrived = map(int, said.split())
    assert sent == arrived > (1 << 28) / SLOW
