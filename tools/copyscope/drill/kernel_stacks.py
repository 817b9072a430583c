"""Kernel stacks of this thread, by perf_event_open(2): of a timer, and of each call of a function."""

import ctypes
import fcntl
import mmap
import os
import platform
import struct
from bisect import bisect_right
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Self

from copyscope.drill.kernel_calls import system_call

SYS_PERF_EVENT_OPEN = {"x86_64": 298}.get(platform.machine(), 241)  # 241: include/uapi/asm-generic/unistd.h
# include/uapi/linux/perf_event.h
ATTR_BYTES = 72  # PERF_ATTR_SIZE_VER1: with config2
SOFTWARE, CPU_CLOCK = 1, 0
SAMPLE_CALLCHAIN, RECORD_SAMPLE = 1 << 5, 9
DISABLED, EXCLUDE_USER, EXCLUDE_CALLCHAIN_USER = 1 << 0, 1 << 4, 1 << 22
IOC_ENABLE, IOC_DISABLE, IOC_PERIOD, IOC_SET_OUTPUT = 0x2400, 0x2401, 0x40082404, 0x2405
DATA_HEAD, DATA_TAIL = 1024, 1032
CONTEXTS_FROM = 2**64 - 4095  # PERF_CONTEXT_*: no addresses
RING_PAGES = 64
KPROBES = Path("/sys/bus/event_source/devices/kprobe/type")
SYMBOLS = Path("/proc/kallsyms")
ADDRESS_DIGITS, NAME_AT = 16, 19


class Unreadable(Exception):
    """Kernel stacks, or the names in them, are not to be had: why, and what to do."""


class Stacks:
    """`read` has what came while `calls` or `timer` was entered: the names of functions, the leaf first."""

    def __init__(self, functions: Iterable[str], is_known: Callable[[str], bool]) -> None:
        """`functions`: whose calls are wanted. Raises Unreadable.

        Of several names for one address one that `is_known` is taken.
        """
        self._held = ExitStack()
        self._names = _Names(is_known)
        page = mmap.PAGESIZE
        try:
            self._timer = self._open(SOFTWARE, CPU_CLOCK, 1_000_000)
            self._ring = mmap.mmap(self._timer, (1 + RING_PAGES) * page)
        except OSError as error:
            self._held.close()
            raise Unreadable(f"perf_event_open: {error.strerror}: run as root") from None
        self._data_at, self._data_bytes = page, RING_PAGES * page
        self._held.callback(self._ring.close)
        self._hooks = dict(self._hook(functions))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._held.close()

    def _open(self, kind: int, config: int, period: int, name: int = 0) -> int:
        flags = DISABLED | EXCLUDE_USER | EXCLUDE_CALLCHAIN_USER
        attributes = struct.pack(
            "<IIQQQQQIIQQ", kind, ATTR_BYTES, config, period, SAMPLE_CALLCHAIN, 0, flags, 0, 0, name, 0
        )
        fd = system_call(SYS_PERF_EVENT_OPEN, attributes, 0, -1, -1, 0)
        self._held.callback(os.close, fd)
        return fd

    def hooks(self, function: str) -> bool:
        """Whether no call of it goes unseen."""
        return function in self._hooks

    def _hook(self, functions: Iterable[str]) -> Iterator[tuple[str, int]]:
        """Of these, each one that this kernel has: such a kprobe goes with its descriptor."""
        if not KPROBES.exists():
            return
        kind = int(KPROBES.read_text())
        for name in sorted(functions):
            text = ctypes.create_string_buffer(name.encode())
            try:
                hook = self._open(kind, 0, 1, ctypes.addressof(text))
            except OSError:
                continue
            fcntl.ioctl(hook, IOC_SET_OUTPUT, self._timer)
            yield name, hook

    @contextmanager
    def calls(self) -> Iterator[None]:
        """A stack of each call, where functions can be hooked."""
        yield from self._while_on(self._hooks.values())

    @contextmanager
    def timer(self, period_ns: int) -> Iterator[None]:
        """A stack after each period in the kernel."""
        fcntl.ioctl(self._timer, IOC_PERIOD, struct.pack("<Q", period_ns))
        yield from self._while_on([self._timer])

    def _while_on(self, events: Collection[int]) -> Iterator[None]:
        self.read()
        for event in events:
            fcntl.ioctl(event, IOC_ENABLE, 0)
        try:
            yield
        finally:
            for event in events:
                fcntl.ioctl(event, IOC_DISABLE, 0)

    def read(self) -> list[list[str]]:
        """Those that came since the last time."""
        head, tail = struct.unpack_from("<QQ", self._ring, DATA_HEAD)
        stacks = []
        while tail < head:
            kind, _, size = struct.unpack("<IHH", self._bytes(tail, 8))
            if kind == RECORD_SAMPLE:
                words = struct.unpack(f"<{size // 8 - 1}Q", self._bytes(tail + 8, size - 8))
                stacks.append([self._names.of(word) for word in words[1:] if word < CONTEXTS_FROM])
            tail += size
        struct.pack_into("<Q", self._ring, DATA_TAIL, tail)
        return stacks

    def _bytes(self, position: int, count: int) -> bytes:
        """Of the ring, whose end goes on at its beginning."""
        at = position % self._data_bytes
        first = min(count, self._data_bytes - at)
        begin = self._data_at + at
        return self._ring[begin : begin + first] + self._ring[self._data_at : self._data_at + count - first]


class _Names:
    """From an address in the kernel to the function that it is in. Only what is asked for is taken apart."""

    def __init__(self, is_known: Callable[[str], bool]) -> None:
        # All addresses have 16 digits: sorted as text, they are sorted.
        self._lines = sorted(SYMBOLS.read_text().splitlines())
        if not self._lines or self._lines[-1].startswith("0" * ADDRESS_DIGITS):
            raise Unreadable(f"{SYMBOLS} hides addresses: run as root")
        self._is_known = is_known
        self._found: dict[int, str] = {}

    def of(self, address: int) -> str:
        if address not in self._found:
            self._found[address] = self._look_up(address)
        return self._found[address]

    def _look_up(self, address: int) -> str:
        end = place = bisect_right(self._lines, f"{address:0{ADDRESS_DIGITS}x}~")
        begin = self._lines[place - 1][:ADDRESS_DIGITS]
        while place and self._lines[place - 1].startswith(begin):
            place -= 1
        names = [line[NAME_AT:].partition("\t")[0] for line in self._lines[place:end]]
        return next((name for name in names if self._is_known(name)), names[0])
