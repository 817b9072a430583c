"""What Python has no function for: vmsplice(2), setns(2), and one request at a time to an io_uring."""

import ctypes
import errno
import mmap
import os
import struct
from contextlib import suppress
from typing import Any, Self

SYS_IO_URING_SETUP, SYS_IO_URING_ENTER = 425, 426  # the same numbers on every architecture
ENTER_GETEVENTS = 1
OFFSET_SQES = 0x10000000  # IORING_OFF_SQES; the rings are at 0
ENTRIES = 4
PARAMS_BYTES, SQE_BYTES, CQE_BYTES = 120, 64, 16
# include/uapi/linux/io_uring.h
OP_SEND_ZC, REPORT_USAGE, ZC_COPIED = 47, 1 << 3, 1 << 31
CQE_MORE = 1 << 1
MSG_WAITALL, MSG_NOSIGNAL = 0x100, 0x4000
CLONE_NEWNET = 0x40000000

_libc = ctypes.CDLL(None, use_errno=True)


class _Iovec(ctypes.Structure):
    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


def address_of(memory: mmap.mmap, offset: int = 0) -> int:
    """Where a mapping that can be written lies."""
    return ctypes.addressof(ctypes.c_char.from_buffer(memory, offset))


def system_call(number: int, *arguments: Any) -> int:
    """What it returned. Raises OSError."""
    return _checked(_libc.syscall(number, *arguments))


def vmsplice(pipe: int, memory: mmap.mmap, offset: int) -> int:
    """Pages of the program's own into a pipe. The bytes that it took."""
    part = _Iovec(address_of(memory, offset), len(memory) - offset)
    return _checked(_libc.vmsplice(pipe, ctypes.byref(part), ctypes.c_size_t(1), ctypes.c_uint(0)))


def enter_network(path: str) -> None:
    """This thread into the network namespace of a file in /proc."""
    with open(path, "rb") as namespace:  # noqa: PTH123 (a namespace, of which only the descriptor counts)
        _checked(_libc.setns(namespace.fileno(), CLONE_NEWNET))


def _checked(returned: int) -> int:
    if returned < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return returned


class Ring:
    """An io_uring for one SEND_ZC at a time: submitted, ended, and at last notified of."""

    def __init__(self) -> None:
        """Raises OSError: switched off, no memory for it, a kernel without it."""
        self._asked = REPORT_USAGE
        parameters = ctypes.create_string_buffer(PARAMS_BYTES)
        self._fd = system_call(SYS_IO_URING_SETUP, ENTRIES, parameters)
        found = struct.unpack("<30I", parameters.raw)
        # struct io_sqring_offsets and io_cqring_offsets, of 10 words each, behind 10 words of its own
        self._tail, self._mask, self._array = found[11], found[12], found[16]
        self._done_head, self._done_tail, self._done_mask = found[20:23]
        self._done = found[25]
        ring_bytes = max(self._array + 4 * found[0], self._done + CQE_BYTES * found[1])
        self._ring = mmap.mmap(self._fd, ring_bytes)
        self._requests = mmap.mmap(self._fd, SQE_BYTES * found[0], offset=OFFSET_SQES)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._ring.close()
        self._requests.close()
        os.close(self._fd)

    def send_zc(self, fd: int, memory: mmap.mmap) -> int:
        """The bytes that the socket took. Raises OSError with the request's own error."""
        try:
            return self._send_zc(fd, memory)
        except OSError as error:
            if error.errno != errno.EINVAL or not self._asked:
                raise
        self._asked = 0  # 6.0 cannot tell whether they copied
        return self._send_zc(fd, memory)

    def _send_zc(self, fd: int, memory: mmap.mmap) -> int:
        flags = MSG_WAITALL | MSG_NOSIGNAL
        request = struct.pack(
            "<BBHiQQIIQQQQ",
            *(OP_SEND_ZC, 0, self._asked, fd, 0, address_of(memory), len(memory), flags, 0, 0, 0, 0),
        )
        tail = self._word(self._tail)
        place = tail & self._word(self._mask)
        self._requests[place * SQE_BYTES : (place + 1) * SQE_BYTES] = request
        self._set(self._array + 4 * place, place)
        self._set(self._tail, tail + 1 & 0xFFFFFFFF)
        result, more = self._completion(submit=1)
        if result < 0:
            if more & CQE_MORE:
                self._completion()
            raise OSError(-result, os.strerror(-result))
        return result

    def notification(self) -> bool | None:
        """Wait for it: was the last send copied after all? None: this kernel does not say."""
        result, _ = self._completion()
        return bool(result & ZC_COPIED) if self._asked else None

    def _completion(self, submit: int = 0) -> tuple[int, int]:
        """(result, flags) of the next one that has come, or comes."""
        while submit or self._word(self._done_head) == self._word(self._done_tail):
            arguments: Any = (self._fd, submit, 1, ENTER_GETEVENTS, None, 0)
            submit = 0
            # What was submitted is not undone by a signal: only the wait is.
            with suppress(InterruptedError):
                system_call(SYS_IO_URING_ENTER, *arguments)
        head = self._word(self._done_head)
        at = self._done + CQE_BYTES * (head & self._word(self._done_mask))
        _, result, flags = struct.unpack_from("<QiI", self._ring, at)
        self._set(self._done_head, head + 1 & 0xFFFFFFFF)
        return result, flags

    def _word(self, offset: int) -> int:
        found: int = struct.unpack_from("<I", self._ring, offset)[0]
        return found

    def _set(self, offset: int, value: int) -> None:
        struct.pack_into("<I", self._ring, offset, value)
