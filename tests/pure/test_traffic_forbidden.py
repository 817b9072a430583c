# SPDX-License-Identifier: GPL-2.0-only
"""Forbidden or missing resources: the traffic program names them in one line, or moves the right bytes."""

import contextlib
import ctypes
import json
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest
from test_traffic_loopback import (
    IN_RING,
    SECONDS_MAX,
    SENDING,
    TRAFFIC,
    all_right,
    end,
    listening_port,
    running,
    unprivileged,
)

# linux/prctl.h, linux/seccomp.h, linux/filter.h. io_uring_setup(2) is number 425 on every architecture.
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS = 22, 38
SECCOMP_MODE_FILTER, RETURN_ERRNO, RETURN_ALLOW = 2, 0x00050000, 0x7FFF0000
LOAD_NUMBER, IF_EQUAL, RETURN = 0x20, 0x15, 0x06
IO_URING_SETUP, EPERM = 425, 1
STOPPED_READING = "stop: the receiver does not read, so the connections were shut down"


class Instruction(ctypes.Structure):
    _fields_ = (
        ("code", ctypes.c_ushort),
        ("yes", ctypes.c_ubyte),
        ("no", ctypes.c_ubyte),
        ("k", ctypes.c_uint),
    )


class Program(ctypes.Structure):
    _fields_ = (("length", ctypes.c_ushort), ("instructions", ctypes.POINTER(Instruction)))


def forbid_io_uring() -> None:
    """Let io_uring_setup(2) fail with EPERM, like the profile of a container or kernel.io_uring_disabled."""
    instructions = (Instruction * 4)(
        Instruction(LOAD_NUMBER, 0, 0, 0),
        Instruction(IF_EQUAL, 0, 1, IO_URING_SETUP),
        Instruction(RETURN, 0, 0, RETURN_ERRNO | EPERM),
        Instruction(RETURN, 0, 0, RETURN_ALLOW),
    )
    libc = ctypes.CDLL(None, use_errno=True)
    program = Program(len(instructions), instructions)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or libc.prctl(
        PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program)
    ):
        os._exit(99)


@pytest.mark.parametrize("impl", IN_RING)
@pytest.mark.parametrize(("more", "status"), [([], 2), (["--check"], 3)])
def test_without_io_uring_the_error_says_what_to_do(impl: str, more: list[str], status: int) -> None:
    done = subprocess.run(
        [TRAFFIC, "send", "--impl", impl, *more],
        preexec_fn=forbid_io_uring,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
        check=False,
    )
    assert (done.returncode, done.stdout) == (status, "")
    assert done.stderr.startswith("traffic send: io_uring: switched off on this machine; allow it (sysctl ")
    assert done.stderr.endswith("use --impl one_copy or zero_copy\n") and done.stderr.count("\n") == 1


def test_a_receiver_that_stops_reading_is_cut_off_and_sent_bytes_are_reported() -> None:
    """All strategies at once: each sender ends within the five seconds that it waits after SIGTERM."""
    output = subprocess.run([TRAFFIC, "list"], capture_output=True, text=True, check=True).stdout
    strategies = [row["name"] for row in json.loads(output) if row["name"] in SENDING]
    endless = ("--duration", "60", "--sndbuf", "65536")
    with contextlib.ExitStack() as stack:
        pairs = []
        for impl in strategies:
            sender = stack.enter_context(running("send", "--impl", impl, *endless))
            port = listening_port(sender)
            receiver = stack.enter_context(running("recv", "--port", port, "--rcvbuf", "65536"))
            pairs.append((impl, sender, receiver))
        time.sleep(0.5)
        for _, _, receiver in pairs:
            receiver.send_signal(signal.SIGSTOP)
        # The receivers' buffers fill up.
        time.sleep(0.5)
        began = time.monotonic()
        for _, sender, _ in pairs:
            sender.send_signal(signal.SIGTERM)
        for impl, sender, _ in pairs:
            sent = end(sender)
            assert sent.status == 1 and sent.report["bytes"] > 0, impl
            assert sent.report["errors"][0] == STOPPED_READING, impl
            assert sent.stderr.splitlines()[0] == f"traffic: {STOPPED_READING}", impl
        assert time.monotonic() - began < SECONDS_MAX / 2


@pytest.mark.ring
def test_a_kernel_that_charges_rings_to_locked_memory_refuses_them() -> None:
    """Linux 6.18 charges a ring to the limit of locked memory. Other kernels create the ring."""
    command = [*unprivileged(0), "send", "--impl", "uring_send", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
    if done.returncode == 0:
        pytest.skip("this kernel charges no ring to the limit of locked memory")
    assert done.returncode == 3
    assert done.stderr == (
        "traffic send: io_uring: no memory for a ring: the limit of locked memory is 0 KiB for all "
        "processes of this user; raise it (ulimit -l) or lower --threads\n"
    )


@pytest.mark.parametrize("words", ["vmsplice", "sendfile --via splice"])
def test_sends_by_reference_to_pages_need_no_locked_memory(words: str) -> None:
    size = ["--size", "300000", "--verify"]
    command = [*unprivileged(0), "send", "--impl", *words.split(), "--messages", "50", *size]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as sender:
        try:
            with running("recv", "--port", listening_port(sender), *size) as receiver:
                received = end(receiver)
            sent = end(sender)
        finally:
            sender.kill()
    assert (sent.status, received.status) == (0, 0), sent.stderr + received.stderr
    assert received.report["verify"] == all_right(50 * 300_000)


@pytest.mark.parametrize(
    ("words", "needed"),
    [("one_copy", 48), ("sendfile", 64), ("uring_send", 64), ("vmsplice", 80), ("sendfile --via splice", 96)],
)
def test_file_descriptors_are_counted_before_the_run(words: str, needed: int) -> None:
    """16 connections need a socket each, and 32 more descriptors."""
    send = ["send", "--impl", *words.split(), "--threads", "16", "--check"]
    for limit, status in ((needed - 1, 3), (needed, 0)):
        command = ["sh", "-c", f'ulimit -n {limit} && exec "$0" "$@"', str(TRAFFIC), *send]
        done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
        assert done.returncode == status, done.stderr
        refused = f"needs {needed} file descriptors, the hard limit is {limit}; raise ulimit -n\n"
        assert done.stderr.endswith(refused) if status else not done.stderr


def test_a_receiver_that_is_stopped_while_it_connects_still_connects() -> None:
    """An interrupted connect(2) is no failure. The end of a trial ring interrupts it as a signal does."""
    with socket.socket() as listener, socket.socket() as first:
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        listener.settimeout(SECONDS_MAX)
        address = listener.getsockname()
        first.connect(
            address
        )  # Now the queue is full: the next client waits, and tries again after a second.
        with running("recv", "--port", str(address[1])) as receiver:
            syn_sent = f":{address[1]:04X} 02 "  # TCP_SYN_SENT
            deadline = time.monotonic() + SECONDS_MAX
            while syn_sent not in Path("/proc/net/tcp").read_text() and time.monotonic() < deadline:
                time.sleep(0.01)
            receiver.send_signal(signal.SIGSTOP)
            receiver.send_signal(signal.SIGCONT)
            time.sleep(0.1)
            listener.accept()[0].close()
            connection, _ = listener.accept()
            with connection:
                connection.sendall(bytes(4096))
            stdout, stderr = receiver.communicate(timeout=SECONDS_MAX)
    assert "Interrupted" not in stderr
    assert json.loads(stdout)["bytes"] == 4096
