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
DRILL = OUTPUT / "tests" / "traffic-drill"

IN_RING = ["uring_send", "uring_zc"]
BY_PAGES = ["sendfile", "vmsplice"]
# What comes before them fills no whole messages: a call for each piece, and none of it is theirs to rewrite.
RELAYS = ["relay_copy", "relay_splice"]
PLAIN = ["null", "per_field", "two_copy", "one_copy", "zero_copy", *BY_PAGES, *IN_RING]
STRATEGIES = [*PLAIN, *RELAYS]
SENDING = STRATEGIES[1:]
RECEIVERS = ["map", "multishot", "poll", "read", "recvmsg", "splice", "trunc"]
BLIND = ["splice", "trunc"]
SECONDS_MAX = 30.0
SIZES = [8, 1001, 65536, 300_000]  # fewer than a field has bytes, odd, a message as it is, larger than a pipe
LOOP = ["--sender", "loop", "--threads", "4"]
POLL = ["--receiver", "poll", "--threads", "4"]

Json = dict[str, Any]


def in_turn(longer: Iterable[str], shorter: Sequence[Any]) -> list[tuple[str, Any]]:
    """Each of the longer once, with the values of the shorter in turn."""
    return list(zip(longer, itertools.cycle(shorter), strict=False))


@dataclass(frozen=True)
class Ended:
    status: int
    report: Json
    stderr: str


def start(*arguments: str, binary: Path = TRAFFIC) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(binary), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def running(*arguments: str, binary: Path = TRAFFIC) -> Iterator[subprocess.Popen[str]]:
    """A program that is killed with the test, if it has not ended by itself."""
    with start(*arguments, binary=binary) as process:
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
    """Until it has had 50 ms of CPU time: on a busy machine the first byte may take seconds."""
    deadline = time.monotonic() + SECONDS_MAX
    while (cpu_ns(process.pid) or 0) < 50e6 and time.monotonic() < deadline:
        time.sleep(0.01)


def is_over(true: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + SECONDS_MAX
    while not true() and time.monotonic() < deadline:
        time.sleep(0.01)
    return true()


def end(process: subprocess.Popen[str]) -> Ended:
    stdout, stderr = process.communicate(timeout=SECONDS_MAX)
    assert stdout.count("\n") == 1, stdout
    return Ended(process.returncode, json.loads(stdout), stderr)


def run_pair(send: list[str], recv: list[str], binary: Path = TRAFFIC) -> tuple[Ended, Ended]:
    with running("send", *send, binary=binary) as sender:
        port = listening_port(sender)
        with running("recv", "--port", port, *recv, binary=binary) as receiver:
            received = end(receiver)
        return end(sender), received


def reports_of(send: list[str], recv: list[str]) -> tuple[Json, Json]:
    """The reports of a pair that ends well."""
    sent, received = run_pair(send, recv)
    assert (sent.status, received.status) == (0, 0), sent.stderr + received.stderr
    return sent.report, received.report


def all_right(checked_bytes: int) -> Json:
    """What a receiver says that has looked at so many bytes, and found each as it was sent."""
    return {"checked_bytes": checked_bytes, "wrong_bytes": 0, "first_wrong_offset": None}


@pytest.mark.parametrize(("impl", "size"), in_turn(STRATEGIES, SIZES))
def test_23_messages_are_counted_23(impl: str, size: int) -> None:
    # pages must not be rewritten while they are on their way
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
        # Of a pair of calls one goes to the pipe.
        pairs = 2 if impl == "vmsplice" else 1
        assert calls * pairs == sum(sent["send_syscalls"].values())
        assert sent["io_uring"] is None
    assert received["verify"] == all_right(total)
    assert sent["too_short"] is True
    assert sent["histograms"]["send_time_ns"]["count"] == 23
    assert sent["errors"] == received["errors"] == []
    assert (sent["zerocopy"] is None) is (impl not in ("zero_copy", "uring_zc"))
    assert (sent["histograms"]["completion_time_ns"] is None) is (sent["zerocopy"] is None)
    assert sent["histograms"]["round_trip_ns"] is None


ZERO_COPY = ["zero_copy", "uring_zc"]


@pytest.mark.parametrize("threads", [1, 4])
def test_zero_copy_completes_every_send_and_loopback_copies_them_all(threads: int) -> None:
    """Also where one thread sends on several connections, each with completions of its own."""
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
def test_when_notices_are_read(words: str) -> None:
    """Each: one send in flight, and its notice. Never: all are in flight until they are read at the end."""
    sent, _ = reports_of(["--impl", *words.split(), "--messages", "400", "--size", "16K"], [])
    account = sent["zerocopy"]
    assert account["sends"] == account["completions"] == account["copied"] == 400
    assert account["in_flight"] == account["enobufs"] == 0
    if words.endswith("never"):
        assert account["max_in_flight"] == 400 and account["waits"] == account["wait_ns"] == 0
    else:
        assert account["max_in_flight"] == 1 and account["notifications"] == 400
        # At a quarter of the ring it looks before it waits, and may find the notice there.
        assert 300 <= account["waits"] <= 400
        assert 0 < account["wait_ns"] < sent["histograms"]["completion_time_ns"]["max"] * 400


def test_a_header_is_as_long_as_it_was_asked_for() -> None:
    """What arrives begins with its letter, the bodies behind it share the rest."""
    options = ["--impl", "one_copy", "--messages", "2", "--size", "1000", "--fields", "4", "--header", "200"]
    with (
        running("send", *options) as sender,
        socket.create_connection(("127.0.0.1", int(listening_port(sender)))) as receiver,
    ):
        got = b"".join(iter(lambda: receiver.recv(1 << 20), b""))
        assert end(sender).report["bytes"] == 2000
    assert got == (b"A" * 200 + b"B" * 266 + b"C" * 266 + b"D" * 268) * 2


@pytest.mark.parametrize("impl", IN_RING)
@pytest.mark.parametrize("more", [(), ("--issue", "async"), ("--issue", "sqpoll"), ("--registered",)])
def test_whoever_does_the_work_of_a_request_the_bytes_are_right(impl: str, more: tuple[str, ...]) -> None:
    if impl == "uring_send" and more == ("--registered",):
        return
    # One field: 6.12 takes registered buffers of SEND_ZC only.
    options = ["--impl", impl, *more, "--fields", "1", "--messages", "500", "--size", "16K"]
    options += ["--verify", "--touch"]
    sent, received = reports_of(
        [*options, "--threads", "2"], ["--size", "16K", "--verify", "--touch", "--threads", "2"]
    )
    assert received["verify"]["checked_bytes"] == sent["bytes"] == 1000 * 16384
    assert received["verify"]["wrong_bytes"] == 0
    assert sent["io_uring"]["requests"] == sent["calls"] == 1000
    # The threads that sent say what they had; the rest is that of io_uring's own threads.
    own_ns = sum(thread["cpu_ns"] for thread in sent["threads"])
    assert own_ns + sent["io_uring"]["worker_cpu_ns"] <= sent["process_cpu_ns"]
    if more[:1] == ("--issue",):
        assert sent["io_uring"]["worker_cpu_ns"] > 0
    if impl == "uring_zc":
        account = sent["zerocopy"]
        noted = ("sends", "completions", "copied", "notifications")
        assert [account[name] for name in noted] == [1000] * 4
        assert account["bytes_sent"] == account["bytes_copied"] == 1000 * 16384
        assert account["in_flight"] == account["enobufs"] == 0


# 23 messages of 8 fields by another call than the usual one -> calls that are counted, and system calls.
OTHERWISE = {
    "one_copy --call writev": (23, {"writev": 23}),
    "sendfile --via splice": (23, {"splice": 46}),
    "per_field --batch 3": (23 * 8, {"sendmmsg": 23 * 3}),
    "per_field --batch 64 --push cork": (23 * 8, {"sendmmsg": 23}),
    "per_field --batch 64 --push more": (23 * 8, {"sendmmsg": 23 * 2}),
}


@pytest.mark.parametrize(("words", "size"), in_turn(OTHERWISE, ["1001", "300000", "8"]))
def test_the_same_bytes_by_another_call(words: str, size: str) -> None:
    calls, made = OTHERWISE[words]
    sent, received = reports_of(
        ["--impl", *words.split(), "--messages", "23", "--size", size, "--verify"],
        ["--size", size, "--verify"],
    )
    assert received["verify"] == all_right(23 * int(size))
    assert sent["calls"] == calls
    assert {name: count for name, count in sent["send_syscalls"].items() if count} == made
    spliced = {"calls": 23, "bytes": 23 * int(size)} if "splice" in words else None
    assert sent["spliced"] == spliced


@pytest.mark.parametrize("words", [*STRATEGIES, *OTHERWISE])
def test_it_says_whether_a_call_passes_the_socket_once(words: str) -> None:
    command = [str(TRAFFIC), "send", "--impl", *words.split(), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    once = words in ("null", "per_field", "two_copy", "one_copy", "zero_copy", "relay_copy")
    assert json.loads(done.stdout)["in_pieces"] is not once


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
def test_it_says_how_its_bytes_move_beside_plain_copies(words: str, moves: list[str]) -> None:
    done = subprocess.run([str(TRAFFIC), *words.split(), "--check"], capture_output=True, check=True)
    assert json.loads(done.stdout)["moves"] == moves


@pytest.mark.parametrize("impl", RELAYS)
@pytest.mark.parametrize("how", ["it is killed", "its feeder is killed", "it ends"])
def test_what_feeds_a_relay_ends_with_it_and_is_missed(impl: str, how: str) -> None:
    """Each connection has a process of its own before it, which holds nothing of the relay's open."""
    control = ["--control", "--threads", "2"]
    with running("send", "--impl", impl, *control) as sender:
        port = str(event(sender)["port"])
        with running("recv", "--port", port, *control) as receiver:
            event(receiver)
            feeders = event(sender)["feeders"]
            assert len(feeders) == 2 and all(map(is_alive, feeders))
            tell(sender, "go")
            event(sender)
            if how == "it is killed":
                sender.kill()
            elif how == "its feeder is killed":
                os.kill(feeders[0], signal.SIGKILL)
                said = event(sender)
                assert said["event"] == "error" and "that sends to the relay has ended" in said["message"]
                # The relay has not waited for it yet: it is gone, but for its name.
                tell(sender, "stop")
            else:
                tell(sender, "stop")
            # End of file: nobody else holds its standard output.
            sender.communicate(timeout=SECONDS_MAX)
            assert sender.returncode == {"it is killed": -signal.SIGKILL, "it ends": 0}.get(how, 1)
            assert is_over(lambda: not any(map(is_alive, feeders)))
            receiver.kill()


@pytest.mark.parametrize("words", ["vmsplice", "sendfile --via splice"])
def test_a_message_larger_than_a_pipe_goes_in_parts(words: str) -> None:
    """A pipe holds 1 MiB at most without privileges, and less where its user has many."""
    shape = ["--size", "5M", "--verify"]
    sent, received = reports_of(
        ["--impl", *words.split(), "--messages", "20", "--fields", "7", *shape], shape
    )
    assert received["verify"] == all_right(100 << 20)
    assert sent["spliced"]["bytes"] == sent["bytes"] == 100 << 20
    assert sent["calls"] == sent["spliced"]["calls"] >= 5 * 20


def test_memory_that_was_given_away_stays_as_it_was_sent() -> None:
    """The sender frees its messages and ends before they are read: nothing is put where they lay."""
    options = ["--impl", "vmsplice", "--messages", "4", "--size", "16K", "--working-set", "4"]
    with (
        running("send", *options) as sender,
        socket.create_connection(("127.0.0.1", int(listening_port(sender)))) as receiver,
    ):
        assert end(sender).report["bytes"] == 4 * 16384
        got = b"".join(iter(lambda: receiver.recv(1 << 20), b""))
    assert got == b"".join(bytes([ord("A") + i]) * 2048 for i in range(8)) * 4


@pytest.mark.parametrize("push", ["none", "more", "cork"])
def test_fields_that_are_held_back_leave_in_one_segment(push: str) -> None:
    """A message of 8 x 64 B: one segment where it is held back; else each send is one, as Nagle is off."""
    options = ["--impl", "per_field", "--push", push, "--size", "512", "--messages", "2000", "--verify"]
    sent, received = reports_of([*options, "--mode", "rr"], ["--size", "512", "--verify", "--mode", "rr"])
    assert sent["calls"] == sent["send_syscalls"]["sendto"] == 8 * 2000
    assert received["verify"]["checked_bytes"] == 2000 * 512
    assert received["verify"]["wrong_bytes"] == 0
    (thread,) = sent["threads"]
    segments = thread["tcp_info"]["data_segs_out"]
    assert segments <= 2100 if push != "none" else segments > 10_000
    # A cork that is never drawn holds a message for 200 ms.
    assert sent["histograms"]["round_trip_ns"]["p50"] < 50_000_000


def test_two_copy_times_its_gathering() -> None:
    sent, _ = reports_of(["--impl", "two_copy", "--messages", "40", "--time-every", "4", "--size", "1M"], [])
    # a gather copy that lost its CPU is counted apart: on a busy machine there are some
    assert sent["gather_timed_messages"] + sent["gather_broken_messages"] == 10
    assert (sent["gather_timed_ns"] > 0) == (sent["gather_timed_messages"] > 0)


@pytest.mark.parametrize(
    ("align", "pages"), [("heap", "4k"), ("page", "4k"), ("heap", "thp"), ("page", "thp")]
)
def test_verified_from_every_memory(align: str, pages: str) -> None:
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
    each = 0 if impl == "null" else 23 * size
    threads = sent["threads"]
    assert [thread["messages"] for thread in threads] == [23] * 4
    assert [thread["bytes"] for thread in threads] == [each] * 4
    assert sorted(thread["bytes"] for thread in received["threads"]) == [each] * 4
    assert received["verify"] == all_right(4 * each)
    assert sent["bytes"] == 4 * each
    calls = {"null": 0, "per_field": 4 * 23 * 8}.get(impl, 4 * 23)
    assert sent["calls"] == calls if impl not in RELAYS else sent["calls"] >= calls
    assert sent["histograms"]["send_time_ns"]["count"] == 4 * 23
    for side in (threads, received["threads"]):
        assert len({thread["tid"] for thread in side}) == 1
        # the time of the one thread is known, the part of each connection is not
        assert side[0]["cpu_ns"] > 0 and [thread["cpu_ns"] for thread in side[1:]] == [None] * 3
    assert sent["options"]["sender"] == "loop"


def test_a_connection_that_is_not_read_does_not_stop_the_others() -> None:
    """One thread, two connections: what one does not take is not waited for while the other has room."""
    options = ["--impl", "one_copy", "--size", "4K", "--sender", "loop", "--threads", "2"]
    with running("send", *options) as sender:
        place = ("127.0.0.1", int(listening_port(sender)))
        with socket.create_connection(place) as read, socket.create_connection(place):
            read.settimeout(SECONDS_MAX)
            got = 0
            while got < 64 << 20:
                taken = len(read.recv(1 << 20))
                assert taken, "the sender has closed"
                got += taken
            sender.kill()


@pytest.mark.parametrize("impl", PLAIN[1:])
def test_what_a_simulator_counts_comes_after_what_warms_it(impl: str) -> None:
    """The instructions that tell a simulator do nothing here; both parts are sent, with a rest after each."""
    began = time.monotonic()
    sent, received = reports_of(
        ["--impl", impl, "--size", "4K", "--simulated", "5", "--messages", "23", "--verify"],
        ["--size", "4K", "--verify"],
    )
    assert sent["messages"] == 5 + 23
    assert received["bytes"] == (5 + 23) * 4096 == received["verify"]["checked_bytes"]
    assert time.monotonic() - began > 0.04


ANSWERED = ["--impl", "one_copy", "--size", "4K", "--simulated", "5", "--messages", "3", "--answered"]


def test_a_simulated_sender_rests_until_all_is_said_to_be_read() -> None:
    with running("send", *ANSWERED) as sender:
        with socket.create_connection(("127.0.0.1", int(listening_port(sender)))) as receiver:
            for messages in (5, 3):
                got = 0
                while got < messages * 4096:
                    got += len(receiver.recv(1 << 20))
                assert got == messages * 4096
                # It would have gone on after 20 ms.
                assert select.select([receiver], [], [], 0.2)[0] == []
                receiver.sendall(b"x")
            assert receiver.recv(1) == b""
        assert end(sender).report["messages"] == 8


@pytest.mark.parametrize("receiver", RECEIVERS)
def test_a_receiver_says_when_it_has_read_so_much(receiver: str) -> None:
    answers = ["--answer", str(5 * 4096), "--answer", str(8 * 4096)]
    sent, received = reports_of(ANSWERED, ["--receiver", receiver, "--size", "4K", *answers])
    assert received["bytes"] == sent["bytes"] == 8 * 4096


@pytest.mark.parametrize("receiver", RECEIVERS)
def test_every_receiver_gets_every_byte(receiver: str) -> None:
    size = [] if receiver in BLIND else ["--verify", "--touch-received"]
    _, received = reports_of(
        ["--impl", "one_copy", "--messages", "200", "--size", "4K", "--verify"],
        ["--receiver", receiver, "--size", "4K", "--buffer", "10000", "--fields", "3", *size],
    )
    assert received["bytes"] == 200 * 4096
    assert received["truncated_bytes"] == (200 * 4096 if receiver == "trunc" else 0)
    assert received["options"]["touch_received"] is (receiver not in BLIND)
    spliced = {"calls": received["calls"], "bytes": 200 * 4096} if receiver == "splice" else None
    assert received["spliced"] == spliced
    asked = received["io_uring"]
    assert (asked is None) is (receiver != "multishot")
    assert asked is None or (asked["requests"] >= 1 and asked["enters"] >= 1)
    # A copying sender's packets are no whole pages of their own: they are copied, as from every other.
    mapped = received["mapped"]
    assert (mapped is None) is (receiver != "map")
    assert mapped is None or (mapped["bytes"], mapped["pages"]) == (0, 0)


def test_whole_pages_of_a_zero_copy_sender_are_mapped_and_right() -> None:
    """The kernel copies them late into pages of their own: those can be mapped, and hold what was sent."""
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
def test_every_receiver_answers(receiver: str) -> None:
    _, received = reports_of(
        ["--impl", "one_copy", "--messages", "50", "--size", "10001", "--mode", "rr"],
        ["--receiver", receiver, "--size", "10001", "--mode", "rr"],
    )
    assert received["replies"] == 50 and received["bytes"] == 50 * 10001


@pytest.mark.parametrize("receiver", RECEIVERS)
def test_an_interrupted_receiver_says_what_it_got(receiver: str) -> None:
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
def test_a_sender_that_is_gone_is_the_end_of_every_stream(receiver: str) -> None:
    """Killed with data under way: a reset or an end, and never a wait for what will not come."""
    with running("send", "--impl", "one_copy", "--size", "64K") as sender:
        port = listening_port(sender)
        with running("recv", "--port", port, "--receiver", receiver) as reading:
            await_work(reading)
            sender.kill()
            received = end(reading)
            assert received.report["bytes"] > 0
            assert received.status == (1 if received.report["errors"] else 0)


@pytest.mark.parametrize("sender", ["threads", "loop"])
def test_a_receiver_that_looks_by_the_clock_gets_every_byte(sender: str) -> None:
    sent, received = reports_of(
        ["--impl", "one_copy", "--messages", "400", "--size", "10007", *LOOP, "--sender", sender, "--verify"],
        ["--size", "10007", "--verify", *POLL, "--coalesce", "200"],
    )
    assert received["verify"]["checked_bytes"] == 4 * 400 * 10007 == sent["bytes"]
    assert received["options"]["coalesce_us"] == 200


def test_messages_from_a_file_on_a_disk(tmp_path: Path) -> None:
    both = ["--size", "100003", "--verify", "--working-set", "3"]
    sent, received = reports_of(
        ["--impl", "sendfile", "--messages", "50", *both, "--file", str(tmp_path)], [*both]
    )
    assert received["verify"]["checked_bytes"] == 50 * 100003 == sent["spliced"]["bytes"]
    assert sent["options"]["file"] == str(tmp_path)
    # it never had a name
    assert list(tmp_path.iterdir()) == []


def test_the_drill_corrupts_and_the_receiver_sees_it() -> None:
    """Buffers rewritten before their completion: what --verify is for.

    The window is far smaller than a message, so most of each still waits in the send queue, as a reference
    to the memory, when sendmsg() returns and the drill rewrites it: with a window that fits, lo may have
    copied all of it.
    """
    sent, received = run_pair(
        ["--impl", "drill", "--messages", "500", "--size", "256K", "--verify", "--touch", "--sndbuf", "4M"],
        ["--size", "256K", "--verify", "--touch", "--rcvbuf", "16K"],
        binary=DRILL,
    )
    assert sent.status == 0, sent.stderr
    assert received.status == 1
    verify = received.report["verify"]
    assert verify["wrong_bytes"] > 0
    assert verify["checked_bytes"] == 500 * 262144 > verify["first_wrong_offset"]
    assert "verify: connection 0:" in received.stderr
    assert received.report["errors"] == [received.stderr.strip().removeprefix("traffic: ")]


def test_the_wrong_generation_is_seen() -> None:
    """The receiver is told a wrong ring length: the content of the second lap is not what it expects."""
    _, received = run_pair(
        ["--impl", "one_copy", "--messages", "8", "--size", "4K", "--verify", "--working-set", "4"],
        ["--size", "4K", "--verify", "--working-set", "5"],
    )
    assert received.status == 1
    assert received.report["verify"]["first_wrong_offset"] // 4096 == 4


@pytest.mark.parametrize("impl", PLAIN[1:])
def test_request_response(impl: str) -> None:
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


FORMS = {
    "threads": ([], []),
    "loop": (["--sender", "loop"], ["--receiver", "poll"]),
    "coalesced": (["--sender", "loop"], ["--receiver", "poll", "--coalesce", "50"]),
}


@pytest.mark.parametrize(("impl", "form"), in_turn(SENDING, list(FORMS)))
def test_every_mark_is_exact_on_both_sides(impl: str, form: str) -> None:
    both = ["--size", "20000", "--threads", "2", "--control", "--verify"]
    with running("send", "--impl", impl, *both, *FORMS[form][0]) as sender:
        port = str(event(sender)["port"])
        with running("recv", "--port", port, *both, *FORMS[form][1]) as receiver:
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
                other = event(receiver)
                assert other["event"] == "mark", other
                assert other.keys() >= TOTALS
                assert mark["bytes"] == other["bytes"] == 20000 * mark["messages"] >= last
                assert mark["messages"] == other["messages"]
                assert impl not in RELAYS or mark["taken"]["bytes"] == mark["bytes"]
                assert other["verify"] == all_right(mark["bytes"])
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
    for report, totals in ((sent.report, mark), (received.report, other)):
        assert all(report[key] == totals[key] for key in ("bytes", "messages", "calls"))
    assert sent.report["event"] == received.report["event"] == "report"


def test_messages_finish_by_themselves() -> None:
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


def test_a_receiver_has_read_until_the_mark_however_late_its_connection_ends() -> None:
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


def test_wrong_commands_are_answered_and_survived() -> None:
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


def test_the_death_of_the_master_ends_both() -> None:
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


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_run_still_reports(number: signal.Signals) -> None:
    with running("send", "--impl", "zero_copy") as sender:
        port = listening_port(sender)
        with running("recv", "--port", port) as receiver:
            with pytest.raises(subprocess.TimeoutExpired):
                sender.wait(0.3)
            sender.send_signal(number)
            sent, received = end(sender), end(receiver)
    assert (sent.status, received.status) == (0, 0), sent.stderr + received.stderr
    assert sent.report["interrupted"] is True
    assert received.report["interrupted"] is False
    assert sent.report["bytes"] == received.report["bytes"] > 0
    assert sent.report["too_short"] is False
    assert sent.report["zerocopy"]["completions"] == sent.report["zerocopy"]["sends"]


def test_a_slow_run_is_not_a_short_one() -> None:
    """One small message at a time never fills a buffer, however long it takes."""
    both = ["--size", "1", "--fields", "1", "--mode", "rr"]
    sent, _ = reports_of(["--impl", "one_copy", "--duration", "0.1", *both], both)
    thread = sent["threads"][0]
    assert 0 < sent["bytes"] < thread["sndbuf_bytes"] + thread["rcvbuf_bytes"]
    assert sent["too_short"] is False


def test_a_report_says_what_limited_the_run() -> None:
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
def test_the_list() -> None:
    done = subprocess.run([TRAFFIC, "list"], capture_output=True, text=True, check=True)
    listed = json.loads(done.stdout)
    assert [strategy["name"] for strategy in listed] == sorted(STRATEGIES)
    aliases = {strategy["name"]: strategy["aliases"] for strategy in listed}
    assert aliases["zero_copy"] == ["zerocopy", "a3"]
    assert all(strategy["claim"].keys() == {"user_copies", "kernel_copies"} for strategy in listed)


@pytest.mark.parametrize("arguments", [["--help"], ["send", "--help"], ["recv", "-h"]])
def test_help_shows_examples(arguments: list[str]) -> None:
    done = subprocess.run([TRAFFIC, *arguments], capture_output=True, text=True, check=True)
    assert "traffic recv --port 7000" in done.stdout or "traffic send --impl" in done.stdout
    assert done.stderr == ""


def test_check_resolves_without_running() -> None:
    command = [str(TRAFFIC), "send", "--impl", "a3", "--size", "16K", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    options = json.loads(done.stdout)
    assert (options["impl"], options["size_bytes"]) == ("zero_copy", 16384)
    assert (options["working_set_messages"], options["time_every"], options["duration_s"]) == (64, 16, 10.0)


def huge_pages_free() -> bool:
    return bool(re.search(r"HugePages_Free: +[1-9]", Path("/proc/meminfo").read_text()))


SEND = ["send", "--impl", "one_copy"]
RECV = ["recv", "--port", "1"]
WRONG = [
    ([], "subcommand"),
    (["sent"], "subcommand"),
    (["list", "all"], "takes no argument"),
    (["send"], "impl"),
    (["send", "--impl", "zerocpy"], "did you mean zero_copy"),
    (
        ["send", "--impl", "splice"],
        f"one of: {', '.join(sorted(STRATEGIES))}",
    ),
    ([*SEND, "--push", "more"], "one_copy sends a message in one piece"),
    (["send", "--impl", "per_field", "--push", "late"], "none, more, cork"),
    ([*SEND, "--issue", "async"], "one_copy does not send through io_uring"),
    (["send", "--impl", "uring_send", "--issue", "later"], "inline, async, sqpoll"),
    (["send", "--impl", "uring_send", "--registered"], "use --impl uring_zc"),
    (["send", "--impl", "sendfile", "--touch"], "still on their way would change"),
    (["send", "--impl", "vmsplice", "--touch"], "nothing tells when it is free"),
    (["send", "--impl", "relay_copy", "--touch"], "a relay passes on what comes to it"),
    (["send", "--impl", "relay_copy", "--fields", "3"], "relay_copy passes on a stream, of no fields"),
    (["send", "--impl", "relay_copy", "--header", "9"], "relay_copy passes on a stream, of no fields"),
    (["send", "--impl", "relay_splice", "--align", "page"], "relay_splice has no fields"),
    (["send", "--impl", "relay_splice", "--pages", "thp"], "relay_splice has no messages in memory"),
    (["send", "--impl", "relay_splice", "--mode", "rr"], "in one direction, and no answers"),
    (["send", "--impl", "relay_splice", "--tls", "1.3"], "what comes to it is plain"),
    (
        ["send", "--impl", "relay_copy", "--simulated", "5", "--messages", "5"],
        "the process before it would be counted",
    ),
    (["send", "--impl", "relay_splice", "--via", "splice"], "relay_splice does not send from a file"),
    ([*SEND, "--batch", "8"], "one_copy sends a message in one piece"),
    (["send", "--impl", "per_field", "--batch", "65"], "out of range"),
    (["send", "--impl", "per_field", "--call", "writev"], "per_field does not send by it"),
    ([*SEND, "--call", "write"], "sendmsg, writev"),
    (["send", "--impl", "zero_copy", "--tls", "1.3"], "zero_copy: a kTLS socket refuses MSG_ZEROCOPY"),
    (["send", "--impl", "uring_zc", "--tls", "1.2"], "uring_zc: a kTLS socket refuses MSG_ZEROCOPY"),
    ([*SEND, "--tls", "1.1"], "off, 1.2, 1.3"),
    (["recv", "--port", "1", "--tls", "1.2", "--receiver", "trunc"], "was not decrypted"),
    ([*SEND, "--via", "splice"], "one_copy does not send from a file"),
    (["send", "--impl", "sendfile", "--pages", "thp"], "--pages 4k"),
    ([*SEND, "--size", "0"], "out of range"),
    ([*SEND, "--wait", "each"], "one_copy gets no notices"),
    (["send", "--impl", "zero_copy", "--wait", "all"], "batch, each, never"),
    (["send", "--impl", "zero_copy", "--wait", "never", "--touch"], "when it may rewrite a buffer"),
    (["send", "--impl", "uring_zc", "--wait", "never"], "reads its notices with its results"),
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
    ([*SEND, "--duration", "1", "--messages", "1"], "drop the other"),
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
    ([*SEND, "--simulated", "4"], "simulated: a number of messages of each thread"),
    ([*SEND, "--simulated", "4", "--messages", "1", "--control"], "simulated: a number of messages"),
    ([*SEND, "--simulated", "4", "--messages", "1", "--control"], "--control out"),
    ([*SEND, "--simulated", "x", "--messages", "1"], "simulated: 'x'"),
    ([*SEND, "--answered"], "answered: only with --simulated: add it"),
    ([*RECV, "--coalesce", "50"], "use --receiver poll"),
    ([*RECV, "--coalesce", "1000000", "--receiver", "poll"], "out of range"),
    ([*RECV, "--coalesce", "9", "--receiver", "poll", "--mode", "rr", "--size", "4K"], "wait for the timer"),
    ([*SEND, "--sise", "1"], "--sise: unknown"),
    ([*SEND, "--s", "1"], "stands for several"),
    ([*SEND, "--size"], "value is missing"),
    ([*SEND, "extra"], "'extra'"),
    (["recv"], "port"),
    (["recv", "--port", "0"], "out of range"),
    ([*RECV, "--receiver", "mmap"], ", ".join(RECEIVERS)),
    ([*RECV, "--touch-received", "--receiver", "splice"], "touch-received: with --receiver splice: there is"),
    ([*RECV, "--receiver", "map", "--buffer", "4095"], "smaller than a page of memory"),
    ([*RECV, "--verify"], "size: missing"),
    ([*RECV, "--mode", "rr"], "size: missing"),
    ([*RECV, "--verify", "--size", "1K", "--receiver", "trunc"], "nothing to look at"),
    ([*RECV, "--impl", "one_copy"], "--impl: unknown"),
]


@pytest.mark.parametrize(("arguments", "reason"), WRONG, ids=[" ".join(words) for words, _ in WRONG])
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
def test_hugetlb_says_how_to_reserve() -> None:
    done = subprocess.run([TRAFFIC, *SEND, "--pages", "hugetlb"], capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "vm.nr_hugepages" in done.stderr


@pytest.mark.skipif(huge_pages_free(), reason="huge pages are reserved on this machine")
def test_a_check_tells_nonsense_from_what_this_machine_cannot_do() -> None:
    for options, status in ((["--pages", "hugetlb"], 3), (["--size", "4"], 2), (["--pages", "2k"], 2)):
        check = [str(TRAFFIC), *SEND, *options, "--check"]
        assert subprocess.run(check, capture_output=True, check=False).returncode == status, options


def unprivileged(limit_kib: int) -> list[str]:
    """A shell command prefix with a memlock limit and without CAP_IPC_LOCK."""
    # As the owner of the checkout: it may lie where nobody else may look (/root; homes of Debian 13).
    owner = f"--reuid={TRAFFIC.parent.parent.stat().st_uid}"
    drop = ["setpriv", owner, "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs"]
    drop = drop if os.geteuid() == 0 else []
    return [*drop, "sh", "-c", f'ulimit -l {limit_kib} && exec "$0" "$@"', str(TRAFFIC)]


@pytest.mark.parametrize("impl", ["zero_copy", "uring_zc"])
def test_a_message_above_the_memlock_limit_is_refused_with_the_arithmetic(impl: str) -> None:
    command = [*unprivileged(64), "send", "--impl", impl, "--size", "1M"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert done.returncode == 2, done.stderr
    assert "256 + 2 pages = 1032 KiB, the limit is 64 KiB" in done.stderr


@pytest.mark.parametrize("sending", ["threads", "loop"])
@pytest.mark.parametrize(("impl", "limit_kib"), [("zero_copy", 100), ("uring_zc", 140)])
def test_a_tight_memlock_budget_is_waited_for_and_counted(impl: str, limit_kib: int, sending: str) -> None:
    """Room for one message at a time, two connections: each must wait for the other, none may starve."""
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


def test_nobody_listening_is_a_failed_run() -> None:
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


def test_a_pipe_that_is_larger_than_allowed_is_refused_before_the_run() -> None:
    most = int(Path("/proc/sys/fs/pipe-max-size").read_text())
    # Root may have larger ones, by this capability.
    drop = ["setpriv", "--bounding-set=-sys_resource", "--inh-caps=-sys_resource"] * (os.geteuid() == 0)
    argv = [*drop, str(TRAFFIC), *RECV, "--receiver", "splice", "--buffer", str(2 * most), "--check"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (3, "", 1)
    assert done.stderr.startswith("traffic recv: receiver: splice: Operation not permitted: it needs a pipe")


@pytest.mark.ring
def test_an_unlocked_limit_refuses_a_ring_or_none_before_the_run() -> None:
    """Where the kernel charges a ring to the limit of locked memory, the refusal names it; else it works."""
    argv = ["prlimit", "--memlock=0", str(TRAFFIC), *RECV, "--receiver", "multishot", "--check"]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    if done.returncode == 0:
        assert json.loads(done.stdout)["receiver"] == "multishot"
    else:
        assert (done.returncode, done.stderr.count("\n")) == (3, 1)
        assert done.stderr.startswith("traffic recv: receiver: multishot: ")
        # `profile` puts its name before it, and shortens what is longer.
        assert len(f"profile: {done.stderr.rstrip()}") <= 200
        assert "kernel.io_uring_disabled" in done.stderr
        assert "ulimit -l" in done.stderr and "use --receiver read" in done.stderr


def test_ktls_is_there_or_the_module_is_named() -> None:
    """With it messages arrive whole, in as many records as they fill; else the next step is said at once."""
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
