# SPDX-License-Identifier: GPL-2.0-only
"""Name the system calls in which threads wait, from the text of /proc/PID/task/TID/syscall. Pure."""

import platform
from typing import NamedTuple

from copyscope.record.waits import RECEIVING_CALLS, SENDING_CALLS

# System call -> number on x86-64, and on machines with the table of asm-generic/unistd.h, such as arm64.
NUMBERS = {
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "poll": (7, None),
    "mmap": (9, 222),
    "munmap": (11, 215),
    "pread64": (17, 67),
    "readv": (19, 65),
    "writev": (20, 66),
    "select": (23, None),
    "nanosleep": (35, 101),
    "sendfile": (40, 71),
    "connect": (42, 203),
    "accept": (43, 202),
    "sendto": (44, 206),
    "recvfrom": (45, 207),
    "sendmsg": (46, 211),
    "recvmsg": (47, 212),
    "wait4": (61, 260),
    "fsync": (74, 82),
    "fdatasync": (75, 83),
    "futex": (202, 98),
    "fadvise64": (221, 223),
    "io_getevents": (208, 4),
    "clock_nanosleep": (230, 115),
    "epoll_wait": (232, None),
    "openat": (257, 56),
    "pselect6": (270, 72),
    "ppoll": (271, 73),
    "splice": (275, 76),
    "epoll_pwait": (281, 22),
    "accept4": (288, 242),
    "preadv": (295, 69),
    "recvmmsg": (299, 243),
    "sendmmsg": (307, 269),
    "preadv2": (327, 286),
    "io_uring_enter": (426, 426),
    "epoll_pwait2": (441, 441),
}
# Other calls with the descriptor of a file as their first argument.
READING_CALLS = ("pread64", "preadv", "preadv2", "fsync", "fdatasync")
# Number of the argument that is the file descriptor. Other calls with a descriptor have it first.
SPLICE_OUTPUT = 2
# Name of a wait outside of a system call, such as a page fault.
PAGE_FAULT = "page fault"
_COLUMN = 0 if platform.machine() in ("x86_64", "i686") else 1
_NAMES = {numbers[_COLUMN]: name for name, numbers in NUMBERS.items()}


class WaitCall(NamedTuple):
    """System call of a waiting thread, and the file descriptor of the socket or file that it uses."""

    name: str
    descriptor: int | None


def find_call(text: str) -> WaitCall | None:
    """Return the call in the text of /proc/PID/task/TID/syscall, or None if the thread is runnable.

    For a wait outside a system call, the text has the number -1. Raises ValueError or IndexError for invalid
    text.
    """
    fields = text.split()
    if fields[0] == "running":
        return None
    number = int(fields[0])
    if number < 0:
        return WaitCall(PAGE_FAULT, None)
    name = _NAMES.get(number, f"call {number}")
    if name not in (*SENDING_CALLS, *RECEIVING_CALLS, *READING_CALLS):
        return WaitCall(name, None)
    descriptor = int(fields[1 + SPLICE_OUTPUT if name == "splice" else 1], 16)
    return WaitCall(name, descriptor & 0x7FFFFFFF)
