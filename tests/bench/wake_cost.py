"""What does it cost a sender to wake its receiver? The time of one send(), asleep against awake.

A sender on one CPU sends a message every 50 us and reads the clock around each send(); its receiver on
another CPU sleeps in recv() in half of the rounds and asks again and again in the others. All else is alike,
so the difference is the wake-up. On a virtual machine most of it is the interrupt for the other processor.
"""

import os
import socket
import time
from statistics import median

GAP_NS = 50_000
SENDS = 1000
ROUNDS = 10
MESSAGE = b"A" * 1024


def wake_ups(cpus: list[str]) -> list[float]:
    """ns of one wake-up, one value a round; both kinds of receiver take turns."""
    return [one_send_ns(cpus, asleep=True) - one_send_ns(cpus, asleep=False) for _ in range(ROUNDS)]


def one_send_ns(cpus: list[str], *, asleep: bool) -> float:
    """The median time of one send()."""
    mine = os.sched_getaffinity(0)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        pid = os.fork()
        if pid == 0:
            _receive(listener.getsockname(), int(cpus[1]), 0 if asleep else socket.MSG_DONTWAIT)
        try:
            os.sched_setaffinity(0, {int(cpus[0])})
            connection, _ = listener.accept()
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                return median(_one(connection) for _ in range(SENDS))
        finally:
            os.sched_setaffinity(0, mine)
            os.waitpid(pid, 0)


def _one(connection: socket.socket) -> int:
    """Waits without sleeping, so that the sender's own CPU stays awake."""
    begin_ns = time.perf_counter_ns() + GAP_NS
    while time.perf_counter_ns() < begin_ns:
        pass
    begin_ns = time.perf_counter_ns()
    connection.sendall(MESSAGE)
    return time.perf_counter_ns() - begin_ns


def _receive(address: tuple[str, int], cpu: int, flags: int) -> None:
    """In a process of its own, which ends with the connection."""
    try:
        os.sched_setaffinity(0, {cpu})
        with socket.create_connection(address) as connection:
            while True:
                try:
                    if not connection.recv(1 << 16, flags):
                        break
                except BlockingIOError:
                    pass
    finally:
        os._exit(0)
