# SPDX-License-Identifier: GPL-2.0-only
"""Metrics of all programs of a node: each has its exact bytes, and the programs without a name are summed."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from copyscope.machine.cgroups import read_mounts
from profiling import KERNEL, SLOW, is_root
from programs import running
from scraping import samples, serving, wait_until

pytest.importorskip("prometheus_client.openmetrics.parser", reason="make .venv/.ready-serve")

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
    pytest.mark.skipif(not read_mounts(), reason="no cgroup of version 2 is mounted"),
    pytest.mark.skipif(KERNEL < (6, 3), reason="--all needs the tracepoint sock_send_length of Linux 6.3"),
]

# Named NAME, sends MESSAGES of BYTES to itself over loopback after a line of input. If SPINS is 1, it then
# uses CPU time until the end of input; otherwise it sleeps.
SENDER = """
import os, select, socket, sys
name, messages, size, spins = sys.argv[1], *map(int, sys.argv[2:])
open("/proc/self/comm", "w").write(name)
listener = socket.create_server(("127.0.0.1", 0))
out = socket.create_connection(listener.getsockname())
there, _ = listener.accept()
os.read(0, 1)
for _ in range(messages):
    assert out.send(bytes(size)) == size
    received = 0
    while received < size:
        received += len(there.recv(size))
print(flush=True)
while spins and not select.select([0], [], [], 0)[0]:
    pass
os.read(0, 1)
"""
# Joins the cgroup $1, and becomes the command that follows.
JOIN = ("sh", "-c", 'echo $$ > "$1/cgroup.procs" && shift && exec "$@"', "sh")


@contextlib.contextmanager
def cgroup(name: str) -> Iterator[Path]:
    group = read_mounts()[0] / f"copyscope-node-{os.getpid()}-{name}"
    group.mkdir()
    try:
        yield group
    finally:
        # The collector ends after copyscope.
        deadline = time.monotonic() + 20 * SLOW
        while (group / "cgroup.procs").read_text() and time.monotonic() < deadline:
            time.sleep(0.1)
        group.rmdir()


class Sender:
    """A running SENDER in a cgroup. `prefix`: command whose arguments it is."""

    def __init__(
        self, name: str, group: Path, messages: int, size: int, *, spins: bool, prefix: Sequence[str] = ()
    ) -> None:
        self.name, self.place = name, f"/{group.name}"
        self.messages, self.bytes = messages, messages * size
        argv = [*prefix, *JOIN, str(group), sys.executable, "-c", SENDER, name]
        argv += [str(messages), str(size), str(int(spins))]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(argv, stdin=pipe, stdout=pipe)

    def __enter__(self) -> "Sender":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def send(self) -> None:
        """Let it send everything, and wait until it has."""
        assert self.process.stdin is not None and self.process.stdout is not None
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == b"\n"

    def expected(self) -> dict[str, float]:
        """Return its exact counts."""
        return counts(self.place, self.name, self.messages, self.bytes)


def counts(place: str, program: str, messages: int, size: int) -> dict[str, float]:
    sent, received = f"sendto send {place} {program} tcp", f"recvfrom receive {place} {program} tcp"
    return {
        f"socket_calls_total {sent}": messages,
        f"socket_bytes_total {sent}": size,
        f"socket_bytes_total {received}": size,
    }


def has(metrics: dict[str, float], expected: dict[str, float]) -> bool:
    return {name: metrics.get(name) for name in expected} == expected


@pytest.mark.all
def test_each_program_of_the_machine_is_named_except_copyscope() -> None:
    with contextlib.ExitStack() as held:
        first, second, ours = (held.enter_context(cgroup(name)) for name in ("a", "b", "watcher"))
        senders = [
            Sender("node-one", first, 50, 8192, spins=False),
            Sender("node-two", first, 70, 4096, spins=False),
            # The same name in another cgroup is another program.
            Sender("node-one", second, 90, 1000, spins=False),
        ]
        for sender in senders:
            held.enter_context(sender)
        options = ("--all", "--top", "1000", "--interval", "2")
        _, port = held.enter_context(serving(*options, prefix=[*JOIN, str(ours)]))
        wait_until(port, lambda metrics: metrics["sessions_total"] == 1)
        for sender in senders:
            sender.send()
        expected = {name: count for sender in senders for name, count in sender.expected().items()}
        expected["sessions_total"] = 1
        wait_until(port, lambda metrics: has(metrics, expected))
        # Wait for another reading of the counts, which contains the answers to the requests before.
        read_s = samples(port)["read_timestamp_seconds"]
        metrics = wait_until(port, lambda metrics: metrics["read_timestamp_seconds"] > read_s)
    # copyscope has answered requests over TCP, and is not among the programs.
    assert [name for name in metrics if ours.name in name] == []
    assert "lost_total watch_program_map_full" not in metrics


def test_programs_beyond_the_top_are_summed() -> None:
    """Only sockets of one network namespace count, so that other programs of this machine need no name."""
    with contextlib.ExitStack() as held:
        first, second = (held.enter_context(cgroup(name)) for name in ("a", "b"))
        up = "ip link set lo up && exec sleep 1000"
        holder = held.enter_context(running(["unshare", "--net", "sh", "-c", up]))
        inside = ("nsenter", f"--net=/proc/{holder.pid}/ns/net")
        wait_for_loopback(inside)
        options = ("--all", "--top", "3", "--interval", "2", "--netns", str(holder.pid))
        _, port = held.enter_context(serving(*options))
        wait_until(port, lambda metrics: metrics["sessions_total"] == 1)
        senders = [
            Sender("node-one", first, 50, 8192, spins=True, prefix=inside),
            Sender("node-two", first, 70, 4096, spins=True, prefix=inside),
            Sender("node-one", second, 90, 1000, spins=True, prefix=inside),
        ]
        for sender in senders:
            held.enter_context(sender).send()
        times = [f"program_cpu_seconds_total {sender.place} {sender.name}" for sender in senders]
        wait_until(port, lambda metrics: all(metrics.get(name, 0) > 0.5 for name in times))
        idle = held.enter_context(Sender("node-idle", second, 30, 500, spins=False, prefix=inside))
        idle.send()
        expected = {name: count for sender in senders for name, count in sender.expected().items()}
        expected |= counts("other", "other", idle.messages, idle.bytes)
        metrics = wait_until(port, lambda metrics: has(metrics, expected))
    assert [name for name in metrics if "node-idle" in name] == []


def wait_for_loopback(inside: Sequence[str]) -> None:
    """Wait until lo of a network namespace is up. `inside`: command that runs its arguments there."""
    command = "until ip link show lo | grep -q UP; do sleep 0.1; done"
    subprocess.run([*inside, "sh", "-c", command], check=True, timeout=20 * SLOW)
