# SPDX-License-Identifier: GPL-2.0-only
"""The traffic programs against each other over loopback: no root, no namespaces, no BPF."""

import itertools
import json
import os
import re
import select
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import pytest
from copyscope.run.processes import cpu_ns, is_alive

OUTPUT = Path(os.environ.get("COPYSCOPE_OUTPUT", Path(__file__).resolve().parents[2] / ".output"))
TRAFFIC = OUTPUT / "traffic"

IN_RING = ["uring_send", "uring_zc"]
BY_PAGES = ["sendfile", "vmsplice"]
# Relays: received pieces are no whole messages. Each piece needs a call, and a relay must not rewrite it.
RELAYS = ["relay_copy", "relay_splice"]
PLAIN = ["null", "per_field", "two_copy", "one_copy", "zero_copy", *BY_PAGES, *IN_RING]
STRATEGIES = [*PLAIN, *RELAYS]
# Strategies whose send call passes the socket once. Others need `in_pieces` in src/traffic/options_json.c.
ONE_PASS = ["null", "per_field", "two_copy", "one_copy", "zero_copy", "relay_copy"]
SENDING = STRATEGIES[1:]
RECEIVERS = ["map", "multishot", "poll", "read", "recvmsg", "splice", "trunc"]
WITHOUT_BYTES = ["splice", "trunc"]
SECONDS_MAX = 30.0
SIZES = [8, 1001, 65536, 300_000]  # a byte per field; odd; the default; larger than a pipe
LOOP = ["--sender", "loop", "--threads", "4"]
POLL = ["--receiver", "poll", "--threads", "4"]

Json = dict[str, Any]


def in_turn(longer: Iterable[str], shorter: Sequence[Any]) -> list[tuple[str, Any]]:
    """Return each item of `longer` with an item of `shorter`, repeated in turn."""
    return list(zip(longer, itertools.cycle(shorter), strict=False))


@dataclass(frozen=True)
class Ended:
    status: int
    report: Json
    stderr: str


def start(*arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(TRAFFIC), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def running(*arguments: str) -> Iterator[subprocess.Popen[str]]:
    """Start the traffic program, and kill it at the end of the test if it still runs."""
    with start(*arguments) as process:
        try:
            yield process
        finally:
            process.kill()


def line(stream: IO[str] | None) -> str:
    assert stream is not None
    return stream.readline()


def event(process: subprocess.Popen[str]) -> Json:
    answer: Json = json.loads(line(process.stdout))
    return answer


def tell(process: subprocess.Popen[str], command: str) -> None:
    assert process.stdin is not None
    process.stdin.write(command + "\n")
    process.stdin.flush()


def listening_port(sender: subprocess.Popen[str]) -> str:
    match = re.fullmatch(r"listening on 127\.0\.0\.1:(\d+)\n", line(sender.stderr))
    assert match is not None
    return match[1]


def await_work(process: subprocess.Popen[str]) -> None:
    """Wait until a process has used 50 ms of CPU time. On a busy machine, its first byte may take seconds."""
    deadline = time.monotonic() + SECONDS_MAX
    while (cpu_ns(process.pid) or 0) < 50e6 and time.monotonic() < deadline:
        time.sleep(0.01)


def is_over(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + SECONDS_MAX
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)
    return condition()


def end(process: subprocess.Popen[str]) -> Ended:
    stdout, stderr = process.communicate(timeout=SECONDS_MAX)
    assert stdout.count("\n") == 1, stdout
    return Ended(process.returncode, json.loads(stdout), stderr)


def run_pair(send: list[str], recv: list[str]) -> tuple[Ended, Ended]:
    with running("send", *send) as sender:
        port = listening_port(sender)
        with running("recv", "--port", port, *recv) as receiver:
            received = end(receiver)
        return end(sender), received


def reports_of(send: list[str], recv: list[str]) -> tuple[Json, Json]:
    """Return the reports of a sender and a receiver that both end with status 0."""
    sent, received = run_pair(send, recv)
    assert (sent.status, received.status) == (0, 0), sent.stderr + received.stderr
    return sent.report, received.report


def all_right(checked_bytes: int) -> Json:
    """Return the `verify` section of a receiver that has checked this many bytes and found none wrong."""
    return {"checked_bytes": checked_bytes, "wrong_bytes": 0, "first_wrong_offset": None}


@pytest.mark.parametrize(("impl", "size"), in_turn(STRATEGIES, SIZES))
def test_all_bytes_and_calls_of_23_messages_are_counted(impl: str, size: int) -> None:
    # pages must not be rewritten while the kernel refers to them
    touch = [] if impl in (*BY_PAGES, *RELAYS) else ["--touch"]
    sent, received = reports_of(
        ["--impl", impl, "--messages", "23", "--size", str(size), "--verify", *touch],
        ["--size", str(size), "--verify", *touch],
    )
    total = 0 if impl == "null" else 23 * size
    calls = {"null": 0, "per_field": 23 * 8}.get(impl, 23)
    assert sent["messages"] == 23
    assert sent["bytes"] == received["bytes"] == total
    assert sent["calls"] == calls if impl not in RELAYS else sent["calls"] >= calls
    if impl in RELAYS:
        by_pages = total if impl == "relay_splice" else 0
        assert (sent["taken"]["bytes"], sent["taken"]["spliced_bytes"]) == (total, by_pages)
        spliced = {"calls": sent["calls"], "bytes": total} if by_pages else None
        assert sent["spliced"] == spliced
        pairs = sent["taken"]["calls"] if by_pages else 0
        assert sum(sent["send_syscalls"].values()) == sent["calls"] + pairs
    elif impl in IN_RING:  # a call may wait for notifications of earlier requests
        assert sent["io_uring"]["requests"] == 23 <= sent["send_syscalls"]["io_uring"]
    else:
        # vmsplice needs two calls: one fills the pipe, and one sends.
        pairs = 2 if impl == "vmsplice" else 1
        assert calls * pairs == sum(sent["send_syscalls"].values())
        assert sent["io_uring"] is None
    assert received["verify"] == all_right(total)
    # 23 messages take less than 50 ms, except the largest messages on a busy machine.
    assert sent["too_short"] is True or (size == 300_000 and sent["sending_ns"] >= 50_000_000)
    assert sent["histograms"]["send_time_ns"]["count"] == 23
    assert sent["errors"] == received["errors"] == []
    assert (sent["zerocopy"] is None) is (impl not in ("zero_copy", "uring_zc"))
    assert (sent["histograms"]["completion_time_ns"] is None) is (sent["zerocopy"] is None)
    assert sent["histograms"]["round_trip_ns"] is None


ZERO_COPY = ["zero_copy", "uring_zc"]


@pytest.mark.parametrize("threads", [1, 4])
def test_zero_copy_completes_every_send_and_loopback_copies_them_all(threads: int) -> None:
    """Four connections of one thread get their own notifications."""
    both = ["--size", "16K", "--verify", "--touch"]
    sent, received = reports_of(
        ["--impl", "zero_copy", "--messages", "500", *both, *(LOOP if threads > 1 else [])],
        [*both, *(POLL if threads > 1 else [])],
    )
    account, sends = sent["zerocopy"], threads * 500
    assert received["verify"] == all_right(sends * 16384)
    assert account["sends"] == account["completions"] == account["copied"] == sends
    assert account["bytes_sent"] == account["bytes_copied"] == sends * 16384
    assert account["in_flight"] == 0
    assert 1 <= account["max_in_flight"] <= sent["options"]["working_set_messages"]
    assert sent["calls"] == account["sends"] + account["enobufs"]
    assert sent["histograms"]["completion_time_ns"]["count"] == sends


@pytest.mark.parametrize("words", [*(f"{impl} --wait each" for impl in ZERO_COPY), "zero_copy --wait never"])
def test_notifications_are_read_after_each_send_or_at_the_end(words: str) -> None:
    """`each`: one send is in flight. `never`: all are in flight, and notifications are read at the end."""
    sent, _ = reports_of(["--impl", *words.split(), "--messages", "400", "--size", "16K"], [])
    account = sent["zerocopy"]
    assert account["sends"] == account["completions"] == account["copied"] == 400
    assert account["in_flight"] == account["enobufs"] == 0
    if words.endswith("never"):
        assert account["max_in_flight"] == 400 and account["waits"] == account["wait_ns"] == 0
    else:
        assert account["max_in_flight"] == 1 and account["notifications"] == 400
        # After each quarter of the ring, the sender polls before it waits, and may find the notification.
        assert 300 <= account["waits"] <= 400
        assert 0 < account["wait_ns"] < sent["histograms"]["completion_time_ns"]["max"] * 400


def test_a_header_has_the_requested_length() -> None:
    """Each field has a letter of its own. The header has 200 bytes, and the other fields share the rest."""
    options = ["--impl", "one_copy", "--messages", "2", "--size", "1000", "--fields", "4", "--header", "200"]
    with (
        running("send", *options) as sender,
        socket.create_connection(("127.0.0.1", int(listening_port(sender)))) as receiver,
    ):
        received = b"".join(iter(lambda: receiver.recv(1 << 20), b""))
        assert end(sender).report["bytes"] == 2000
    assert received == (b"A" * 200 + b"B" * 266 + b"C" * 266 + b"D" * 268) * 2


@pytest.mark.parametrize("impl", IN_RING)
@pytest.mark.parametrize("more", [(), ("--issue", "async"), ("--issue", "sqpoll"), ("--registered",)])
def test_requests_of_io_uring_arrive_unchanged_in_each_mode(impl: str, more: tuple[str, ...]) -> None:
    if impl == "uring_send" and more == ("--registered",):
        return
    # A single field: Linux 6.12 accepts registered buffers only with SEND_ZC.
    options = ["--impl", impl, *more, "--fields", "1", "--messages", "500", "--size", "16K"]
    options += ["--verify", "--touch"]
    sent, received = reports_of(
        [*options, "--threads", "2"], ["--size", "16K", "--verify", "--touch", "--threads", "2"]
    )
    assert received["verify"]["checked_bytes"] == sent["bytes"] == 1000 * 16384
    assert received["verify"]["wrong_bytes"] == 0
    assert sent["io_uring"]["requests"] == sent["calls"] == 1000
    # The CPU time of the process includes that of its own threads and of io_uring's threads.
    own_ns = sum(thread["cpu_ns"] for thread in sent["threads"])
    assert own_ns + sent["io_uring"]["worker_cpu_ns"] <= sent["process_cpu_ns"]
    if more[:1] == ("--issue",):
        assert sent["io_uring"]["worker_cpu_ns"] > 0
    if impl == "uring_zc":
        account = sent["zerocopy"]
        counted = ("sends", "completions", "copied", "notifications")
        assert [account[name] for name in counted] == [1000] * 4
        assert account["bytes_sent"] == account["bytes_copied"] == 1000 * 16384
        assert account["in_flight"] == account["enobufs"] == 0


# Options for 23 messages of 8 fields by another call than the usual one -> (counted calls, system calls).
BY_ANOTHER_CALL = {
    "one_copy --call writev": (23, {"writev": 23}),
    "sendfile --via splice": (23, {"splice": 46}),
    "per_field --batch 3": (23 * 8, {"sendmmsg": 23 * 3}),
    "per_field --batch 64 --push cork": (23 * 8, {"sendmmsg": 23}),
    "per_field --batch 64 --push more": (23 * 8, {"sendmmsg": 23 * 2}),
}


@pytest.mark.parametrize(("words", "size"), in_turn(BY_ANOTHER_CALL, ["1001", "300000", "8"]))
def test_another_system_call_sends_the_same_bytes(words: str, size: str) -> None:
    calls, syscalls = BY_ANOTHER_CALL[words]
    sent, received = reports_of(
        ["--impl", *words.split(), "--messages", "23", "--size", size, "--verify"],
        ["--size", size, "--verify"],
    )
    assert received["verify"] == all_right(23 * int(size))
    assert sent["calls"] == calls
    assert {name: count for name, count in sent["send_syscalls"].items() if count} == syscalls
    spliced = {"calls": 23, "bytes": 23 * int(size)} if "splice" in words else None
    assert sent["spliced"] == spliced


@pytest.mark.parametrize("words", [*STRATEGIES, *BY_ANOTHER_CALL])
def test_in_pieces_says_whether_a_call_passes_the_socket_once(words: str) -> None:
    command = [str(TRAFFIC), "send", "--impl", *words.split(), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    expected = words not in ONE_PASS
    hint = "correct `in_pieces` in src/traffic/options_json.c, or ONE_PASS in this file"
    assert json.loads(done.stdout)["in_pieces"] is expected, f"{words}: in_pieces is not {expected}: {hint}"


@pytest.mark.parametrize(
    ("words", "moves"),
    [
        ("send --impl one_copy", []),
        ("send --impl zero_copy", ["zerocopy"]),
        ("send --impl sendfile", ["pages"]),
        ("send --impl vmsplice", ["pages"]),
        ("send --impl relay_copy", []),
        ("send --impl relay_splice", ["pages"]),
        ("recv --port 1", []),
        ("recv --port 1 --receiver map", ["map"]),
    ],
)
def test_moves_names_other_ways_than_plain_copies(words: str, moves: list[str]) -> None:
    done = subprocess.run([str(TRAFFIC), *words.split(), "--check"], capture_output=True, check=True)
    assert json.loads(done.stdout)["moves"] == moves


@pytest.mark.parametrize("impl", RELAYS)
@pytest.mark.parametrize("ending", ["it is killed", "its feeder is killed", "it ends"])
def test_feeders_of_a_relay_end_with_it_and_their_death_is_an_error(impl: str, ending: str) -> None:
    """Each connection has a feeder process, which holds no open files of the relay."""
    control = ["--control", "--threads", "2"]
    with running("send", "--impl", impl, *control) as sender:
        port = str(event(sender)["port"])
        with running("recv", "--port", port, *control) as receiver:
            event(receiver)
            feeders = event(sender)["feeders"]
            assert len(feeders) == 2 and all(map(is_alive, feeders))
            tell(sender, "go")
            event(sender)
            if ending == "it is killed":
                sender.kill()
            elif ending == "its feeder is killed":
                os.kill(feeders[0], signal.SIGKILL)
                error = event(sender)
                assert error["event"] == "error" and "that sends to the relay has ended" in error["message"]
                # The relay has not reaped the dead feeder yet, which is a zombie until it does.
                tell(sender, "stop")
            else:
                tell(sender, "stop")
            # communicate() ends only if no other process holds the standard output of the relay.
            sender.communicate(timeout=SECONDS_MAX)
            assert sender.returncode == {"it is killed": -signal.SIGKILL, "it ends": 0}.get(ending, 1)
            assert is_over(lambda: not any(map(is_alive, feeders)))
            receiver.kill()


@pytest.mark.parametrize("words", ["vmsplice", "sendfile --via splice"])
def test_a_message_larger_than_a_pipe_is_sent_in_parts(words: str) -> None:
    """Without privileges a pipe holds at most 1 MiB, and less if the user has many pipes."""
    shape = ["--size", "5M", "--verify"]
    sent, received = reports_of(
        ["--impl", *words.split(), "--messages", "20", "--fields", "7", *shape], shape
    )
    assert received["verify"] == all_right(100 << 20)
    assert sent["spliced"]["bytes"] == sent["bytes"] == 100 << 20
    assert sent["calls"] == sent["spliced"]["calls"] >= 5 * 20


def test_spliced_memory_is_not_reused_before_it_is_read() -> None:
    """The sender frees its messages and ends before the receiver reads them, unchanged."""
    options = ["--impl", "vmsplice", "--messages", "4", "--size", "16K", "--working-set", "4"]
    with (
        running("send", *options) as sender,
        socket.create_connection(("127.0.0.1", int(listening_port(sender)))) as receiver,
    ):
        assert end(sender).report["bytes"] == 4 * 16384
        received = b"".join(iter(lambda: receiver.recv(1 << 20), b""))
    assert received == b"".join(bytes([ord("A") + i]) * 2048 for i in range(8)) * 4


@pytest.mark.parametrize("push", ["none", "more", "cork"])
def test_fields_that_are_held_back_are_sent_in_one_tcp_segment(push: str) -> None:
    """A message of 8 x 64 B is one TCP segment if it is held back. Otherwise each send is one."""
    options = ["--impl", "per_field", "--push", push, "--size", "512", "--messages", "2000", "--verify"]
    sent, received = reports_of([*options, "--mode", "rr"], ["--size", "512", "--verify", "--mode", "rr"])
    assert sent["calls"] == sent["send_syscalls"]["sendto"] == 8 * 2000
    assert received["verify"]["checked_bytes"] == 2000 * 512
    assert received["verify"]["wrong_bytes"] == 0
    (thread,) = sent["threads"]
    segments = thread["tcp_info"]["data_segs_out"]
    assert segments <= 2100 if push != "none" else segments > 10_000
    # A cork that is never removed holds a message for 200 ms.
    assert sent["histograms"]["round_trip_ns"]["p50"] < 50_000_000


def test_two_copy_times_every_fourth_gather_copy() -> None:
    sent, _ = reports_of(["--impl", "two_copy", "--messages", "40", "--time-every", "4", "--size", "1M"], [])
    # Preempted gather copies are counted apart: a busy machine has some.
    assert sent["gather_timed_messages"] + sent["gather_broken_messages"] == 10
    assert (sent["gather_timed_ns"] > 0) == (sent["gather_timed_messages"] > 0)


@pytest.mark.parametrize(
    ("align", "pages"), [("heap", "4k"), ("page", "4k"), ("heap", "thp"), ("page", "thp")]
)
def test_bytes_from_each_kind_of_memory_arrive_unchanged(align: str, pages: str) -> None:
    sent, received = reports_of(
        [
            *("--impl", "zerocopy", "--messages", "50", "--size", "100003", "--fields", "7", "--verify"),
            *("--align", align, "--pages", pages, "--threads", "2"),
        ],
        ["--size", "100003", "--verify", "--threads", "2"],
    )
    assert received["verify"]["checked_bytes"] == 2 * 50 * 100003
    assert [thread["messages"] for thread in sent["threads"]] == [50, 50]


@pytest.mark.parametrize(("impl", "size"), in_turn(STRATEGIES, SIZES[::-1]))
def test_one_thread_sends_on_all_connections_in_turn(impl: str, size: int) -> None:
    sent, received = reports_of(
        ["--impl", impl, "--messages", "23", "--size", str(size), "--verify", *LOOP],
        ["--size", str(size), "--verify", *POLL],
    )
    bytes_of_each = 0 if impl == "null" else 23 * size
    threads = sent["threads"]
    assert [thread["messages"] for thread in threads] == [23] * 4
    assert [thread["bytes"] for thread in threads] == [bytes_of_each] * 4
    assert sorted(thread["bytes"] for thread in received["threads"]) == [bytes_of_each] * 4
    assert received["verify"] == all_right(4 * bytes_of_each)
    assert sent["bytes"] == 4 * bytes_of_each
    calls = {"null": 0, "per_field": 4 * 23 * 8}.get(impl, 4 * 23)
    assert sent["calls"] == calls if impl not in RELAYS else sent["calls"] >= calls
    assert sent["histograms"]["send_time_ns"]["count"] == 4 * 23
    for side in (threads, received["threads"]):
        assert len({thread["tid"] for thread in side}) == 1
        # The CPU time of the only thread is known, but not the part of each connection.
        assert side[0]["cpu_ns"] > 0 and [thread["cpu_ns"] for thread in side[1:]] == [None] * 3
    assert sent["options"]["sender"] == "loop"


def test_a_connection_that_is_not_read_does_not_stop_the_others() -> None:
    """A thread with two connections does not wait for the full connection while the other has room."""
    options = ["--impl", "one_copy", "--size", "4K", "--sender", "loop", "--threads", "2"]
    with running("send", *options) as sender:
        address = ("127.0.0.1", int(listening_port(sender)))
        with socket.create_connection(address) as read, socket.create_connection(address):
            read.settimeout(SECONDS_MAX)
            received_bytes = 0
            while received_bytes < 64 << 20:
                count = len(read.recv(1 << 20))
                assert count, "the sender has closed"
                received_bytes += count
            sender.kill()


@pytest.mark.parametrize("impl", PLAIN[1:])
def test_counted_messages_of_a_simulation_follow_its_warm_up(impl: str) -> None:
    """Instructions for a simulator do nothing here. Both parts are sent, with a pause after each."""
    began = time.monotonic()
    sent, received = reports_of(
        ["--impl", impl, "--size", "4K", "--simulated", "5", "--messages", "23", "--verify"],
        ["--size", "4K", "--verify"],
    )
    assert sent["messages"] == 5 + 23
    assert received["bytes"] == (5 + 23) * 4096 == received["verify"]["checked_bytes"]
    assert time.monotonic() - began > 0.04


ANSWERED_SEND = ["--impl", "one_copy", "--size", "4K", "--simulated", "5", "--messages", "3", "--answered"]


def test_a_simulated_sender_pauses_until_the_receiver_answers() -> None:
    with running("send", *ANSWERED_SEND) as sender:
        with socket.create_connection(("127.0.0.1", int(listening_port(sender)))) as receiver:
            for messages in (5, 3):
                received_bytes = 0
                while received_bytes < messages * 4096:
                    received_bytes += len(receiver.recv(1 << 20))
                assert received_bytes == messages * 4096
                # Without --answered, the sender would continue after 20 ms.
                assert select.select([receiver], [], [], 0.2)[0] == []
                receiver.sendall(b"x")
            assert receiver.recv(1) == b""
        assert end(sender).report["messages"] == 8


@pytest.mark.parametrize("receiver", RECEIVERS)
def test_a_receiver_answers_after_the_requested_bytes(receiver: str) -> None:
    answers = ["--answer", str(5 * 4096), "--answer", str(8 * 4096)]
    sent, received = reports_of(ANSWERED_SEND, ["--receiver", receiver, "--size", "4K", *answers])
    assert received["bytes"] == sent["bytes"] == 8 * 4096


@pytest.mark.parametrize("receiver", RECEIVERS)
def test_every_receiver_gets_every_byte(receiver: str) -> None:
    size = [] if receiver in WITHOUT_BYTES else ["--verify", "--touch-received"]
    _, received = reports_of(
        ["--impl", "one_copy", "--messages", "200", "--size", "4K", "--verify"],
        ["--receiver", receiver, "--size", "4K", "--buffer", "10000", "--fields", "3", *size],
    )
    assert received["bytes"] == 200 * 4096
    assert received["truncated_bytes"] == (200 * 4096 if receiver == "trunc" else 0)
    assert received["options"]["touch_received"] is (receiver not in WITHOUT_BYTES)
    spliced = {"calls": received["calls"], "bytes": 200 * 4096} if receiver == "splice" else None
    assert received["spliced"] == spliced
    io_uring = received["io_uring"]
    assert (io_uring is None) is (receiver != "multishot")
    assert io_uring is None or (io_uring["requests"] >= 1 and io_uring["enters"] >= 1)
    # Packets of a copying sender are not whole pages, so the receiver copies rather than maps them.
    mapped = received["mapped"]
    assert (mapped is None) is (receiver != "map")
    assert mapped is None or (mapped["bytes"], mapped["pages"]) == (0, 0)


def test_whole_pages_of_a_zero_copy_sender_are_mapped_unchanged() -> None:
    """Late copies are in whole pages of their own, which can be mapped and hold the sent bytes."""
    _, received = reports_of(
        ["--impl", "zero_copy", "--messages", "100", "--size", "64K", "--verify", "--touch"],
        ["--receiver", "map", "--size", "64K", "--verify", "--touch", "--touch-received"],
    )
    mapped, total = received["mapped"], 100 * 65536
    assert received["bytes"] == received["verify"]["checked_bytes"] == total
    assert total / 2 < mapped["bytes"] == mapped["pages"] * 4096
    assert mapped["bytes"] + mapped["copied_bytes"] <= total
    assert 0 < mapped["calls"] <= received["calls"]


@pytest.mark.parametrize("receiver", ["map", "multishot", "splice"])
def test_every_receiver_replies_to_each_message(receiver: str) -> None:
    _, received = reports_of(
        ["--impl", "one_copy", "--messages", "50", "--size", "10001", "--mode", "rr"],
        ["--receiver", receiver, "--size", "10001", "--mode", "rr"],
    )
    assert received["replies"] == 50 and received["bytes"] == 50 * 10001


@pytest.mark.parametrize("receiver", RECEIVERS)
def test_an_interrupted_receiver_reports_its_bytes(receiver: str) -> None:
    with running("send", "--impl", "one_copy", "--size", "64K") as sender:
        port = listening_port(sender)
        with running("recv", "--port", port, "--receiver", receiver) as reading:
            await_work(reading)
            reading.send_signal(signal.SIGINT)
            received = end(reading)
            assert (received.status, received.report["interrupted"]) == (0, True), received.stderr
            assert received.report["bytes"] > 0
            sender.send_signal(signal.SIGINT)


@pytest.mark.parametrize("receiver", RECEIVERS)
def test_every_receiver_ends_after_its_sender_is_killed(receiver: str) -> None:
    """The sender is killed with data in flight. The receiver sees a reset or an end, and never hangs."""
    with running("send", "--impl", "one_copy", "--size", "64K") as sender:
        port = listening_port(sender)
        with running("recv", "--port", port, "--receiver", receiver) as reading:
            await_work(reading)
            sender.kill()
            received = end(reading)
            assert received.report["bytes"] > 0
            assert received.status == (1 if received.report["errors"] else 0)


@pytest.mark.parametrize("sender", ["threads", "loop"])
def test_a_receiver_that_polls_by_a_timer_gets_every_byte(sender: str) -> None:
    sent, received = reports_of(
        ["--impl", "one_copy", "--messages", "400", "--size", "10007", *LOOP, "--sender", sender, "--verify"],
        ["--size", "10007", "--verify", *POLL, "--coalesce", "200"],
    )
    assert received["verify"]["checked_bytes"] == 4 * 400 * 10007 == sent["bytes"]
    assert received["options"]["coalesce_us"] == 200


def test_messages_can_come_from_a_file_on_a_disk(tmp_path: Path) -> None:
    common = ["--size", "100003", "--verify", "--working-set", "3"]
    sent, received = reports_of(
        ["--impl", "sendfile", "--messages", "50", *common, "--file", str(tmp_path)], [*common]
    )
    assert received["verify"]["checked_bytes"] == 50 * 100003 == sent["spliced"]["bytes"]
    assert sent["options"]["file"] == str(tmp_path)
    # the file of the messages never had a name
    assert list(tmp_path.iterdir()) == []


def test_each_wrong_byte_is_counted() -> None:
    """Three bytes of the stream are changed between sender and receiver."""
    wrong_offsets = (17, 5000, 23 * 1001 - 1)
    send = ("--impl", "one_copy", "--messages", "23", "--size", "1001", "--verify")
    with running("send", *send) as sender, socket.create_server(("127.0.0.1", 0)) as relay:
        source = socket.create_connection(("127.0.0.1", int(listening_port(sender))), SECONDS_MAX)
        relay_port = str(relay.getsockname()[1])
        with source, running("recv", "--port", relay_port, "--size", "1001", "--verify") as receiver:
            stream = bytearray(b"".join(iter(lambda: source.recv(65536), b"")))
            assert len(stream) == 23 * 1001
            for offset in wrong_offsets:
                stream[offset] ^= 1
            relay.settimeout(SECONDS_MAX)
            connection, _ = relay.accept()
            with connection:
                connection.sendall(stream)
            received = end(receiver)
    assert received.status == 1
    assert received.report["verify"] == {
        "checked_bytes": 23 * 1001,
        "wrong_bytes": 3,
        "first_wrong_offset": 17,
    }
    assert "verify: connection 0: 3 of 23023 bytes are wrong, the first at 17; " in received.stderr
    assert received.report["errors"] == [received.stderr.strip().removeprefix("traffic: ")]


def test_content_of_another_lap_of_the_ring_is_wrong() -> None:
    """The receiver expects a longer ring, so that the content of the second lap looks wrong."""
    _, received = run_pair(
        ["--impl", "one_copy", "--messages", "8", "--size", "4K", "--verify", "--working-set", "4"],
        ["--size", "4K", "--verify", "--working-set", "5"],
    )
    assert received.status == 1
    assert received.report["verify"]["first_wrong_offset"] // 4096 == 4


@pytest.mark.parametrize("impl", PLAIN[1:])
def test_each_request_gets_a_reply_and_a_round_trip_time(impl: str) -> None:
    sent, received = reports_of(
        ["--impl", impl, "--messages", "100", "--size", "10000", "--mode", "rr"],
        ["--size", "10000", "--mode", "rr"],
    )
    round_trip = sent["histograms"]["round_trip_ns"]
    assert round_trip["count"] == 100 == received["replies"]
    assert round_trip["min"] >= sent["histograms"]["send_time_ns"]["min"]
    assert round_trip["min"] <= round_trip["p50"] <= round_trip["p99"] <= round_trip["max"]


TOTALS = {"t_ns", "bytes", "messages", "calls", "process_cpu_ns", "user_ns", "system_ns"} | {
    "voluntary_switches",
    "involuntary_switches",
}


WAYS_TO_WAIT = {
    "threads": ([], []),
    "loop": (["--sender", "loop"], ["--receiver", "poll"]),
    "coalesced": (["--sender", "loop"], ["--receiver", "poll", "--coalesce", "50"]),
}


@pytest.mark.parametrize(("impl", "form"), in_turn(SENDING, list(WAYS_TO_WAIT)))
def test_totals_of_sender_and_receiver_agree_at_every_pause(impl: str, form: str) -> None:
    common = ["--size", "20000", "--threads", "2", "--control", "--verify"]
    with running("send", "--impl", impl, *common, *WAYS_TO_WAIT[form][0]) as sender:
        port = str(event(sender)["port"])
        with running("recv", "--port", port, *common, *WAYS_TO_WAIT[form][1]) as receiver:
            assert event(receiver)["event"] == "connected"
            connected = event(sender)
            assert len(connected.pop("feeders", [])) == (2 if impl in RELAYS else 0)
            assert connected == {"event": "connected", "threads": 2}
            tell(sender, "go")
            before = event(sender)["t_ns"]
            last = 0
            for number in range(20):
                time.sleep(0.005)  # of traffic
                tell(sender, "pause")
                mark = event(sender)
                assert mark["event"] == "mark"
                assert mark.keys() >= TOTALS
                assert mark["t_ns"] > before
                tell(receiver, f"settle {mark['bytes']}")
                received_mark = event(receiver)
                assert received_mark["event"] == "mark", received_mark
                assert received_mark.keys() >= TOTALS
                assert mark["bytes"] == received_mark["bytes"] == 20000 * mark["messages"] >= last
                assert mark["messages"] == received_mark["messages"]
                assert impl not in RELAYS or mark["taken"]["bytes"] == mark["bytes"]
                assert received_mark["verify"] == all_right(mark["bytes"])
                if mark["zerocopy"] is not None:
                    assert mark["zerocopy"]["in_flight"] == 0
                    assert mark["zerocopy"]["bytes_sent"] == mark["bytes"]
                    assert mark["zerocopy"]["bytes_copied"] == 20000 * mark["zerocopy"]["copied"]
                last = mark["bytes"]
                if number == 19:
                    break
                tell(sender, "resume")
                resumed = event(sender)
                assert resumed["event"] == "resumed"
                before = resumed["t_ns"]
            tell(sender, "stop")
            tell(receiver, "stop")
            sent, received = end(sender), end(receiver)
    assert (sent.status, received.status) == (0, 0)
    assert sent.report["bytes"] == received.report["bytes"] == last > 0
    for report, totals in ((sent.report, mark), (received.report, received_mark)):
        assert all(report[key] == totals[key] for key in ("bytes", "messages", "calls"))
    assert sent.report["event"] == received.report["event"] == "report"


def test_a_fixed_number_of_messages_ends_without_a_command() -> None:
    with running("send", "--impl", "zero_copy", "--messages", "23", "--control") as sender:
        port = str(event(sender)["port"])
        with running("recv", "--port", port, "--control") as receiver:
            assert event(receiver)["event"] == event(sender)["event"] == "connected"
            tell(sender, "pause")
            assert event(sender)["bytes"] == 0
            tell(sender, "go")
            assert event(sender)["event"] == "going"
            finished = event(sender)
            assert (finished["event"], finished["bytes"]) == ("finished", 23 * 65536)
            tell(receiver, f"settle {finished['bytes']}")
            mark = event(receiver)
            assert mark["bytes"] == finished["bytes"]
            assert mark["messages"] is None
            tell(sender, "stop")
            tell(receiver, "stop")
            assert end(sender).report["messages"] == 23
            assert end(receiver).status == 0


def test_receiving_ends_at_the_last_byte_not_with_the_connection() -> None:
    with running("send", "--impl", "one_copy", "--size", "1000", "--control") as sender:
        port = str(event(sender)["port"])
        with running("recv", "--port", port, "--control") as receiver:
            assert event(receiver)["event"] == event(sender)["event"] == "connected"
            begun_ns = time.monotonic_ns()
            tell(sender, "go")
            assert event(sender)["event"] == "going"
            time.sleep(0.05)
            tell(sender, "pause")
            paused = event(sender)
            tell(receiver, f"settle {paused['bytes']}")
            mark = event(receiver)
            time.sleep(0.3)  # the connection ends long after its last byte
            tell(sender, "stop")
            tell(receiver, "stop")
            assert end(sender).status == 0
            received = end(receiver).report
    assert received["bytes"] == paused["bytes"] > 0
    assert 0 < received["sending_ns"] < mark["t_ns"] - begun_ns


def test_a_wrong_command_is_answered_with_an_error() -> None:
    with running("send", "--impl", "null", "--control") as sender:
        port = str(event(sender)["port"])
        for command in ("pause", "resume", "go", "dance"):
            tell(sender, command)
            assert event(sender)["event"] == "error"
        with running("recv", "--port", port, "--control") as receiver:
            assert event(receiver)["event"] == "connected"
            tell(receiver, "settle many")
            assert event(receiver)["event"] == "error"
            assert event(sender)["event"] == "connected"
            tell(sender, "stop")
            tell(receiver, "stop")
            assert end(sender).status == end(receiver).status == 0


def test_sender_and_receiver_end_with_their_parent() -> None:
    with running("send", "--impl", "one_copy", "--control") as sender:
        port = str(event(sender)["port"])
        with running("recv", "--port", port, "--control") as receiver:
            event(receiver)
            event(sender)
            tell(sender, "go")
            event(sender)
            for process in (sender, receiver):
                assert process.stdin is not None
                process.stdin.close()
                assert process.wait(SECONDS_MAX) == 1


@pytest.mark.parametrize("sending", ["threads", "loop"])
def test_a_killed_receiver_is_reported(sending: str) -> None:
    with running(
        "send", "--impl", "zero_copy", "--control", "--size", "100000", "--sender", sending
    ) as sender:
        port = str(event(sender)["port"])
        with running("recv", "--port", port) as receiver:
            event(sender)
            tell(sender, "go")
            assert event(sender)["event"] == "going"
            receiver.kill()
            failed = event(sender)
            assert failed["event"] == "error"
            tell(sender, "stop")
            sent = end(sender)
    assert sent.status == 1
    assert sent.report["errors"] == [failed["message"]]
    assert "connection" in failed["message"]
    assert sent.report["zerocopy"]["in_flight"] == 0


@pytest.mark.parametrize("signal_number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_still_reports(signal_number: signal.Signals) -> None:
    with running("send", "--impl", "zero_copy") as sender:
        port = listening_port(sender)
        with running("recv", "--port", port) as receiver:
            with pytest.raises(subprocess.TimeoutExpired):
                sender.wait(0.3)
            sender.send_signal(signal_number)
            sent, received = end(sender), end(receiver)
    assert (sent.status, received.status) == (0, 0), sent.stderr + received.stderr
    assert sent.report["interrupted"] is True
    assert received.report["interrupted"] is False
    assert sent.report["bytes"] == received.report["bytes"] > 0
    assert sent.report["too_short"] is False
    assert sent.report["zerocopy"]["completions"] == sent.report["zerocopy"]["sends"]


def test_a_slow_run_is_not_too_short() -> None:
    """A run with one small message at a time never fills a buffer, but is long enough."""
    both = ["--size", "1", "--fields", "1", "--mode", "rr"]
    sent, _ = reports_of(["--impl", "one_copy", "--duration", "0.1", *both], both)
    thread = sent["threads"][0]
    assert 0 < sent["bytes"] < thread["sndbuf_bytes"] + thread["rcvbuf_bytes"]
    assert sent["too_short"] is False


def test_a_report_has_the_counts_that_show_a_limit() -> None:
    sent, received = reports_of(
        ["--impl", "one_copy", "--duration", "0.3", "--threads", "2"], ["--threads", "2"]
    )
    assert sent["too_short"] is False
    assert sent["sending_ns"] >= 300_000_000
    assert sent["options"]["congestion_control"] == sent["threads"][0]["congestion_control"]
    for thread in sent["threads"]:
        info = thread["tcp_info"]
        assert info["bytes_acked"] >= thread["bytes"]
        assert {
            "busy_time_us",
            "rwnd_limited_us",
            "sndbuf_limited_us",
            "total_retrans",
            "rtt_us",
            "snd_cwnd",
        } <= set(info)
    assert sum(thread["bytes"] for thread in received["threads"]) == sent["bytes"]
    assert sent["limits"].keys() >= {"memlock_bytes", "optmem_max_bytes"}


@pytest.mark.ring
def test_the_list_has_every_strategy_with_aliases_and_claims() -> None:
    done = subprocess.run([TRAFFIC, "list"], capture_output=True, text=True, check=True)
    listed = json.loads(done.stdout)
    names = [strategy["name"] for strategy in listed]
    assert names == sorted(STRATEGIES), "add a new strategy to PLAIN in this file"
    aliases = {strategy["name"]: strategy["aliases"] for strategy in listed}
    assert aliases["zero_copy"] == ["zerocopy", "a3"]
    assert all(strategy["claim"].keys() == {"user_copies", "kernel_copies"} for strategy in listed)


@pytest.mark.parametrize("arguments", [["--help"], ["send", "--help"], ["recv", "-h"]])
def test_help_shows_examples(arguments: list[str]) -> None:
    done = subprocess.run([TRAFFIC, *arguments], capture_output=True, text=True, check=True)
    assert "traffic recv --port 7000" in done.stdout or "traffic send --impl" in done.stdout
    assert done.stderr == ""


def test_check_prints_resolved_options_without_running() -> None:
    command = [str(TRAFFIC), "send", "--impl", "a3", "--size", "16K", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    options = json.loads(done.stdout)
    assert (options["impl"], options["size_bytes"]) == ("zero_copy", 16384)
    assert (options["working_set_messages"], options["time_every"], options["duration_s"]) == (64, 16, 10.0)


def huge_pages_free() -> bool:
    return bool(re.search(r"HugePages_Free: +[1-9]", Path("/proc/meminfo").read_text()))


SEND = ["send", "--impl", "one_copy"]
RECV = ["recv", "--port", "1"]
WRONG_USAGE = [
    ([], "subcommand"),
    (["sent"], "subcommand"),
    (["list", "all"], "takes no argument"),
    (["send"], "impl"),
    (["send", "--impl", "zerocpy"], "did you mean zero_copy"),
    (
        ["send", "--impl", "splice"],
        f"choose {', '.join(sorted(STRATEGIES))}",
    ),
    ([*SEND, "--push", "more"], "one_copy sends a message in one piece"),
    (["send", "--impl", "per_field", "--push", "late"], "none, more, cork"),
    ([*SEND, "--issue", "async"], "one_copy does not send through io_uring"),
    (["send", "--impl", "uring_send", "--issue", "later"], "inline, async, sqpoll"),
    (["send", "--impl", "uring_send", "--registered"], "use --impl uring_zc"),
    (["send", "--impl", "sendfile", "--touch"], "bytes in flight would change"),
    (["send", "--impl", "vmsplice", "--touch"], "does not report when it may be rewritten"),
    (["send", "--impl", "relay_copy", "--touch"], "a relay forwards the bytes that it receives"),
    (["send", "--impl", "relay_copy", "--fields", "3"], "relay_copy forwards a stream without fields"),
    (["send", "--impl", "relay_copy", "--header", "9"], "relay_copy forwards a stream without fields"),
    (["send", "--impl", "relay_splice", "--align", "page"], "relay_splice has no fields"),
    (["send", "--impl", "relay_splice", "--pages", "thp"], "relay_splice has no messages in memory"),
    (["send", "--impl", "relay_splice", "--mode", "rr"], "in one direction only, so no answer"),
    (["send", "--impl", "relay_splice", "--tls", "1.3"], "its upstream connection is plain text"),
    (
        ["send", "--impl", "relay_copy", "--simulated", "5", "--messages", "5"],
        "would also count the process that feeds it",
    ),
    (["send", "--impl", "relay_splice", "--via", "splice"], "relay_splice does not send from a file"),
    ([*SEND, "--batch", "8"], "one_copy sends a message in one piece"),
    (["send", "--impl", "per_field", "--batch", "65"], "out of range"),
    (
        ["send", "--impl", "per_field", "--call", "writev"],
        "per_field does not send all fields by one system call",
    ),
    ([*SEND, "--call", "write"], "sendmsg, writev"),
    (["send", "--impl", "zero_copy", "--tls", "1.3"], "with zero_copy: a kTLS socket refuses MSG_ZEROCOPY"),
    (["send", "--impl", "uring_zc", "--tls", "1.2"], "with uring_zc: a kTLS socket refuses MSG_ZEROCOPY"),
    ([*SEND, "--tls", "1.1"], "off, 1.2, 1.3"),
    (["recv", "--port", "1", "--tls", "1.2", "--receiver", "trunc"], "encrypted bytes"),
    ([*SEND, "--via", "splice"], "one_copy does not send from a file"),
    (["send", "--impl", "sendfile", "--pages", "thp"], "--pages 4k"),
    ([*SEND, "--size", "0"], "out of range"),
    ([*SEND, "--wait", "each"], "one_copy gets no notifications"),
    (["send", "--impl", "zero_copy", "--wait", "all"], "batch, each, never"),
    (["send", "--impl", "zero_copy", "--wait", "never", "--touch"], "when it may rewrite a buffer"),
    (["send", "--impl", "uring_zc", "--wait", "never"], "its notifications together with its results"),
    ([*SEND, "--header", "64K"], "less than a byte for each of the other 7 fields"),
    ([*SEND, "--header", "5", "--fields", "1"], "use --fields 2"),
    ([*SEND, "--size", "7"], "smaller than 8 fields"),
    ([*SEND, "--size", "2G"], "out of range"),
    ([*SEND, "--size", "64KX"], "unknown suffix 'KX'"),
    ([*SEND, "--size", "-5"], "not a size"),
    ([*SEND, "--fields", "0"], "out of range"),
    ([*SEND, "--fields", "1025"], "out of range"),
    ([*SEND, "--threads", "0"], "out of range"),
    ([*SEND, "--threads", "10000"], "out of range"),
    ([*SEND, "--port", "65536"], "out of range"),
    ([*SEND, "--listen", "nowhere"], "nowhere"),
    ([*SEND, "--duration", "0"], "not a time"),
    ([*SEND, "--duration", "1", "--messages", "1"], "leave one of them out"),
    ([*SEND, "--cpus", "9999"], "does not exist"),
    ([*SEND, "--cpus", "0,x"], "not a list"),
    ([*SEND, "--congestion", "nosuch"], "cubic"),
    ([*SEND, "--pages", "64k"], "4k, thp, hugetlb"),
    ([*SEND, "--mode", "rrr"], "stream, rr"),
    ([*SEND, "--nodelay", "yes"], "off, on"),
    ([*SEND, "--time-every", "0"], "out of range"),
    ([*SEND, "--working-set", "0"], "out of range"),
    ([*SEND, "--size", "1G", "--working-set", "65536"], "lower --working-set"),
    (["send", "--impl", "null", "--mode", "rr"], "no answer"),
    ([*SEND, "--sender", "poll"], "threads, loop"),
    ([*SEND, "--sender", "loop", "--mode", "rr"], "use --sender threads"),
    ([*SEND, "--file", "/tmp"], "one_copy does not send from a file"),
    (["send", "--impl", "sendfile", "--file", "/nowhere"], "choose another directory"),
    ([*SEND, "--simulated", "4"], "--simulated: needs a number of messages"),
    ([*SEND, "--simulated", "4", "--messages", "1", "--control"], "--simulated: needs a number"),
    ([*SEND, "--simulated", "4", "--messages", "1", "--control"], "--control out"),
    ([*SEND, "--simulated", "x", "--messages", "1"], "--simulated x: not a whole number"),
    ([*SEND, "--answered"], "--answered: works only with --simulated"),
    ([*RECV, "--coalesce", "50"], "use --receiver poll"),
    ([*RECV, "--coalesce", "1000000", "--receiver", "poll"], "out of range"),
    ([*RECV, "--coalesce", "9", "--receiver", "poll", "--mode", "rr", "--size", "4K"], "wait for the timer"),
    ([*SEND, "--sise", "1"], "--sise: unknown option"),
    ([*SEND, "--s", "1"], "abbreviation of several options"),
    ([*SEND, "--size"], "value is missing"),
    ([*SEND, "extra"], "unexpected argument 'extra'"),
    (["recv"], "port"),
    (["recv", "--port", "0"], "out of range"),
    ([*RECV, "--receiver", "mmap"], ", ".join(RECEIVERS)),
    (
        [*RECV, "--touch-received", "--receiver", "splice"],
        "--touch-received: not together with --receiver splice",
    ),
    ([*RECV, "--receiver", "map", "--buffer", "4095"], "smaller than a page of memory"),
    ([*RECV, "--verify"], "--size: missing"),
    ([*RECV, "--mode", "rr"], "--size: missing"),
    ([*RECV, "--verify", "--size", "1K", "--receiver", "trunc"], "does not pass the bytes to the program"),
    ([*RECV, "--impl", "one_copy"], "--impl: unknown option"),
]


@pytest.mark.parametrize(
    ("arguments", "reason"), WRONG_USAGE, ids=[" ".join(words) for words, _ in WRONG_USAGE]
)
def test_wrong_usage_is_one_line(arguments: list[str], reason: str) -> None:
    done = subprocess.run(
        [TRAFFIC, *arguments], capture_output=True, text=True, timeout=SECONDS_MAX, check=False
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.count("\n") == 1
    assert done.stderr.startswith("traffic")
    assert reason in done.stderr


@pytest.mark.skipif(huge_pages_free(), reason="huge pages are reserved on this machine")
def test_missing_huge_pages_are_refused_with_the_sysctl() -> None:
    done = subprocess.run([TRAFFIC, *SEND, "--pages", "hugetlb"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "vm.nr_hugepages" in done.stderr


@pytest.mark.skipif(huge_pages_free(), reason="huge pages are reserved on this machine")
def test_wrong_usage_and_limits_of_the_machine_differ_in_status() -> None:
    for options, status in ((["--pages", "hugetlb"], 3), (["--size", "4"], 2), (["--pages", "2k"], 2)):
        check = [str(TRAFFIC), *SEND, *options, "--check"]
        assert subprocess.run(check, capture_output=True, check=False).returncode == status, options


def unprivileged(limit_kib: int) -> list[str]:
    """A shell command prefix with a memlock limit and without CAP_IPC_LOCK."""
    # The owner of the checkout runs it, because other users may not enter its directory (/root, some homes).
    owner = f"--reuid={TRAFFIC.parent.parent.stat().st_uid}"
    drop = ["setpriv", owner, "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]
    drop = drop if os.geteuid() == 0 else []
    return [*drop, "sh", "-c", f'ulimit -l {limit_kib} && exec "$0" "$@"', str(TRAFFIC)]


@pytest.mark.parametrize("impl", ["zero_copy", "uring_zc"])
def test_a_message_above_the_memlock_limit_is_refused_with_the_sizes(impl: str) -> None:
    command = [*unprivileged(64), "send", "--impl", impl, "--size", "1M"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 2, done.stderr
    assert "256 + 2 pages = 1032 KiB of locked memory, the limit is 64 KiB" in done.stderr


@pytest.mark.parametrize("sending", ["threads", "loop"])
@pytest.mark.parametrize(("impl", "limit_kib"), [("zero_copy", 100), ("uring_zc", 140)])
def test_sends_wait_for_locked_memory_and_refusals_are_counted(
    impl: str, limit_kib: int, sending: str
) -> None:
    """The limit has room for one message. Two connections wait for each other, and neither starves."""
    command = [*unprivileged(limit_kib), "send", "--impl", impl, "--size", "64K", "--messages", "300"]
    command += ["--threads", "2", "--verify", "--sender", sending]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as sender:
        try:
            port = listening_port(sender)
            with running("recv", "--port", port, "--threads", "2", "--size", "64K", "--verify") as receiver:
                received = end(receiver)
            sent = end(sender)
        finally:
            sender.kill()
    assert (sent.status, received.status) == (0, 0), sent.stderr + received.stderr
    account = sent.report["zerocopy"]
    assert account["enobufs"] > 0
    assert account["sends"] == account["completions"] == 600
    assert sent.report["calls"] == account["sends"] + account["enobufs"]
    assert received.report["verify"]["wrong_bytes"] == 0


def test_a_refused_connection_is_a_failed_run() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        done = subprocess.run(
            [TRAFFIC, "recv", "--port", str(port)],
            capture_output=True,
            text=True,
            timeout=SECONDS_MAX,
            check=False,
        )
    assert done.returncode == 1
    assert "refused" in done.stderr
    assert "refused" in json.loads(done.stdout)["errors"][0]


def test_a_pipe_above_the_limit_is_refused_before_the_run() -> None:
    limit_bytes = int(Path("/proc/sys/fs/pipe-max-size").read_text())
    # Root may exceed the limit with CAP_SYS_RESOURCE.
    drop = ["setpriv", "--bounding-set=-sys_resource", "--inh-caps=-sys_resource"] * (os.geteuid() == 0)
    argv = [*drop, str(TRAFFIC), *RECV, "--receiver", "splice", "--buffer", str(2 * limit_bytes), "--check"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert done.stderr.startswith("traffic recv: --receiver splice: Operation not permitted; it needs a pipe")


@pytest.mark.ring
def test_without_locked_memory_a_receiving_ring_works_or_is_refused_early() -> None:
    """If the kernel charges rings to the limit of locked memory, the error names the limit."""
    argv = ["prlimit", "--memlock=0", str(TRAFFIC), *RECV, "--receiver", "multishot", "--check"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    if done.returncode == 0:
        assert json.loads(done.stdout)["receiver"] == "multishot"
    else:
        assert (done.returncode, done.stderr.count("\n")) == (3, 1)
        assert done.stderr.startswith("traffic recv: --receiver multishot: ")
        # copyscope puts its name before the message and shortens longer messages.
        assert len(f"profile: {done.stderr.rstrip()}") <= 200
        assert "kernel.io_uring_disabled" in done.stderr
        assert "ulimit -l" in done.stderr and "use --receiver read" in done.stderr


def test_ktls_works_or_its_module_is_named() -> None:
    """With kTLS, messages arrive unchanged in the expected number of TLS records."""
    checked = subprocess.run(
        [TRAFFIC, *SEND, "--tls", "1.3", "--check"], capture_output=True, text=True, check=False
    )
    if checked.returncode:
        assert checked.returncode == 3 and "sudo modprobe tls" in checked.stderr
        return
    for version, overhead_bytes in (("1.2", 29), ("1.3", 22)):
        options = ["--tls", version, "--size", "40000", "--verify"]
        sent, received = reports_of(["--impl", "one_copy", "--messages", "23", *options], options)
        assert received["verify"]["checked_bytes"] == 23 * 40_000
        assert (sent["tls"]["version"], sent["tls_records"]) == (version, 23 * 3)
        acked = sum(thread["tcp_info"]["bytes_acked"] for thread in sent["threads"])
        assert acked == 23 * (40_000 + 3 * overhead_bytes)
