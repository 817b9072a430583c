"""Every way to give the kernel a buffer, and what the kernel says of it when it is free again."""

import errno
import mmap
import os
import select
import socket
import struct
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Literal, Self

from copyscope.drill.kernel_calls import Ring, vmsplice

Notified = Literal["copied", "zero-copy"] | None
BUFFER_BYTES = 16_384
# include/uapi/asm-generic/socket.h, linux/socket.h, linux/errqueue.h
SO_ZEROCOPY, MSG_ZEROCOPY, MSG_ERRQUEUE = 60, 0x4000000, 0x2000
ORIGIN_ZEROCOPY, CODE_COPIED = 5, 1
NOTIFIED_WITHIN_S = 1.0


class Way(ABC):
    """One way on one connection. The buffer is `memory`, the program's own, or a file."""

    name: str
    directory: Path | None = None  # where its file is; None: it has none, or one in memory

    def __init__(self, sock: socket.socket) -> None:
        """Raises OSError where the socket cannot send so."""
        self.sock = sock
        self.held = ExitStack()
        self.memory = self.map()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.held.close()

    def map(self) -> mmap.mmap:
        return mmap.mmap(-1, BUFFER_BYTES)

    def rewrite(self, byte: bytes) -> None:
        """All of the buffer anew. Raises OSError where a file has no room for it."""
        self.memory[:] = byte * BUFFER_BYTES

    @abstractmethod
    def send(self) -> None:
        """All of the buffer; returns when the call has."""

    def notified(self) -> Notified:
        """What the kernel says when the memory is free, after the receiver has read; None: nothing."""
        return None


def _whole(step: Callable[[int], int]) -> None:
    """Call until all has been taken; `step` is given how much has been."""
    sent = 0
    while sent < BUFFER_BYTES:
        sent += step(sent)


class Write(Way):
    name = "write"

    def send(self) -> None:
        _whole(lambda sent: os.write(self.sock.fileno(), memoryview(self.memory)[sent:]))


class Sendmsg(Way):
    name = "sendmsg"

    def send(self) -> None:
        _whole(lambda sent: self.sock.sendmsg([memoryview(self.memory)[sent:]]))


class MsgZerocopy(Way):
    name = "MSG_ZEROCOPY"

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        sock.setsockopt(socket.SOL_SOCKET, SO_ZEROCOPY, 1)

    def send(self) -> None:
        _whole(lambda sent: self.sock.sendmsg([memoryview(self.memory)[sent:]], [], MSG_ZEROCOPY))

    def notified(self) -> Notified:
        until = time.monotonic() + NOTIFIED_WITHIN_S
        while time.monotonic() < until:
            errors = select.poll()
            errors.register(self.sock, 0)
            errors.poll(100)
            try:
                _, parts, _, _ = self.sock.recvmsg(0, 512, MSG_ERRQUEUE | socket.MSG_DONTWAIT)
            except BlockingIOError:
                continue
            for _, _, data in parts:
                _, origin, _, code = struct.unpack_from("<IBBB", data)
                if origin == ORIGIN_ZEROCOPY:
                    return "copied" if code & CODE_COPIED else "zero-copy"
        return None


class SendZc(Way):
    name = "SEND_ZC"

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self.ring = self.held.enter_context(Ring())

    def send(self) -> None:
        self.ring.send_zc(self.sock.fileno(), self.memory)

    def notified(self) -> Notified:
        copied = self.ring.notification()
        return None if copied is None else "copied" if copied else "zero-copy"


class SendfileMemfd(Way):
    name = "sendfile, memfd"

    def map(self) -> mmap.mmap:
        self.file = self.open()
        self.held.callback(os.close, self.file)
        return super().map()

    def rewrite(self, byte: bytes) -> None:
        # The pages are the same as by a mapping, but of a full disk that would be told by SIGBUS.
        if os.pwrite(self.file, byte * BUFFER_BYTES, 0) != BUFFER_BYTES:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    def open(self) -> int:
        return os.memfd_create("drill")

    def send(self) -> None:
        _whole(lambda sent: os.sendfile(self.sock.fileno(), self.file, sent, BUFFER_BYTES - sent))


class SendfilePages(SendfileMemfd):
    name = "sendfile, file"

    def open(self) -> int:
        file, name = tempfile.mkstemp(dir=self.directory)
        os.unlink(name)  # noqa: PTH108 (it has no other name)
        return file


class Splice(SendfilePages):
    name = "splice, file"

    def __init__(self, sock: socket.socket) -> None:
        super().__init__(sock)
        self.out, self.into = os.pipe()
        self.held.callback(os.close, self.out)
        self.held.callback(os.close, self.into)

    def send(self) -> None:
        _whole(self._piece)

    def _piece(self, sent: int) -> int:
        left = taken = self.fill(sent)
        while left:
            left -= os.splice(self.out, self.sock.fileno(), left)
        return taken

    def fill(self, sent: int) -> int:
        return os.splice(self.file, self.into, BUFFER_BYTES - sent, offset_src=sent)


class Vmsplice(Splice):
    name = "vmsplice"
    map, rewrite = Way.map, Way.rewrite

    def fill(self, sent: int) -> int:
        return vmsplice(self.into, self.memory, sent)


WAYS: tuple[type[Way], ...] = (
    *(Write, Sendmsg, MsgZerocopy, SendZc),
    *(SendfilePages, SendfileMemfd, Splice, Vmsplice),
)
