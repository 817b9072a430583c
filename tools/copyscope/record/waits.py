# SPDX-License-Identifier: GPL-2.0-only
"""Structs about where the threads of a watched process wait. Pure."""

from typing import ClassVar

from copyscope.record.sections import Reasoned, Section

# System calls that send to a socket, and that receive from a socket. Some of them also work on files.
SENDING_CALLS = ("write", "writev", "sendto", "sendmsg", "sendmmsg", "sendfile", "splice")
RECEIVING_CALLS = ("read", "readv", "recvfrom", "recvmsg", "recvmmsg", "accept", "accept4")


class WaitRow(Section):
    """Number of samples with one system call (null: awake), file and kernel function."""

    call: str | None
    file: str | None
    function: str | None
    samples: int


class Waits(Reasoned):
    """Samples of active threads.

    disk_bytes: `read_bytes` of /proc/PID/io
    held_samples: samples of sending connections in which TCP held a segment back
    fixed_buffer_bytes: smallest fixed SO_SNDBUF
    """

    MAIN: ClassVar[str] = "samples"
    samples: int | None
    threads: int
    rows: list[WaitRow]
    disk_bytes: int | None
    connection_samples: int
    held_samples: int
    fixed_buffer_bytes: int | None
