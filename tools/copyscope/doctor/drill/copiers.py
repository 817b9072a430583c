# SPDX-License-Identifier: GPL-2.0-only
"""Find the kernel function that copies what a program sends.

Sender and receiver run on one CPU, and perf_event_open(2) records kernel stacks on this CPU: at each call to
a hookable copying function or, if there is no such call, at timer ticks.
"""

import ctypes
import fcntl
import mmap
import os
import platform
import struct
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, Self

from copyscope.run.child import Child
from copyscope.taxonomy.accounts import TABLE
from copyscope.taxonomy.taxonomy import Taxonomy, is_glob

# Copies that the kernel makes between the send call and the receive call.
KERNEL_COPIES = tuple(
    account.name for account in TABLE if account.is_copy and account.leg in ("send call", "way")
)
# Result of a trial -> accounts of the taxonomy that hold such a copy.
ACCOUNTS_OF_RESULT: Mapping[str, tuple[str, ...]] = {
    "copied before return": tuple(name for name in KERNEL_COPIES if name != "deferred"),
    "late copy": ("deferred",),
}
HOOKED_ACCOUNTS = tuple(name for name in KERNEL_COPIES if name != "silent")
LATE_COPY_FUNCTION = "skb_copy_ubufs"  # the only function that makes late copies
HOOKS_S, SAMPLED_S, READ_INTERVAL_S = 0.005, 0.4, 0.005
SAMPLES_WANTED, SAMPLES_MIN = 20, 3
# Limits of the timer's period. With a shorter one, an emulated CPU would only run the handler of the timer.
PERIODS_NS = (50_000, 1_000_000)

SYS_PERF_EVENT_OPEN = {"x86_64": 298}.get(platform.machine(), 241)  # 241: include/uapi/asm-generic/unistd.h
# include/uapi/linux/perf_event.h
ATTR_BYTES = 72  # PERF_ATTR_SIZE_VER1: with config2
SOFTWARE, CPU_CLOCK = 1, 0
SAMPLE_TID, SAMPLE_CALLCHAIN, RECORD_SAMPLE = 1 << 1, 1 << 5, 9
PID_MASK = 2**32 - 1  # lower half of PERF_SAMPLE_TID: the pid; the upper half is the thread
DISABLED, EXCLUDE_USER, EXCLUDE_CALLCHAIN_USER = 1 << 0, 1 << 4, 1 << 22
IOC_ENABLE, IOC_DISABLE, IOC_PERIOD, IOC_SET_OUTPUT = 0x2400, 0x2401, 0x40082404, 0x2405
DATA_HEAD, DATA_TAIL = 1024, 1032
CONTEXT_MARKS_FROM = 2**64 - 4095  # call chains contain PERF_CONTEXT_* marks, which are no addresses
RING_PAGES = 64
KPROBE_TYPE_FILE = Path("/sys/bus/event_source/devices/kprobe/type")
KALLSYMS = Path("/proc/kallsyms")
ADDRESS_DIGITS, NAME_AT = 16, 19

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass(frozen=True)
class Copier:
    """A kernel function that copied. `within`: the nearest caller that is not part of the copy."""

    function: str
    within: str
    account: str
    seen_by: Literal["hook", "samples"]
    count: int  # hooked calls, or samples


class StacksUnreadableError(Exception):
    """Raised if kernel stacks or symbols cannot be read. The message says why, and what to do."""


def sampled_cpu() -> int:
    """Return the CPU on which stacks are recorded: the highest-numbered CPU that this process may use."""
    return max(os.sched_getaffinity(0))


def hookable_functions(taxonomy: Taxonomy) -> frozenset[str]:
    """Return the taxonomy's functions that copy and may be hookable.

    Functions in the kernel's lib/ are left out: no kernel lets them be hooked.
    """
    return frozenset(
        rule.pattern
        for rule in taxonomy.rules
        if rule.category in HOOKED_ACCOUNTS
        and rule.kind in ("inclusive", "owner")
        and not is_glob(rule.pattern)
    )


def find_copier(stacks: "Stacks", pair: Sequence[Child], result: str, taxonomy: Taxonomy) -> Copier | None:
    """Run a sender and its receiver and return the kernel function that copies.

    Return None if nothing was copied, or if no copying function was seen. `result`: result of the drill.
    """
    sender, pids = pair[0], [child.pid for child in pair]
    accounts = ACCOUNTS_OF_RESULT.get(result)
    if accounts is None:
        return None
    with stacks.calls():
        began_ns = sender.ask("go", "going")["t_ns"]
        time.sleep(HOOKS_S)
        sent = sender.ask("pause", "mark")
    counts = count_copies(stacks.read(pids), accounts, taxonomy)
    if counts:
        return most_frequent(counts, "hook")
    if result == "late copy" and stacks.hooks(LATE_COPY_FUNCTION):
        return None
    message_ns = (sent["t_ns"] - began_ns) // max(1, sent["messages"])
    until_s = time.monotonic() + SAMPLED_S
    with stacks.timer(min(max(message_ns, PERIODS_NS[0]), PERIODS_NS[1])):
        sender.ask("resume", "resumed")
        while counts.total() < SAMPLES_WANTED and time.monotonic() < until_s:
            time.sleep(READ_INTERVAL_S)
            counts += count_copies(stacks.read(pids), accounts, taxonomy)
    return most_frequent(counts, "samples") if counts.total() >= SAMPLES_MIN else None


def count_copies(
    stacks: Iterable[Sequence[str]], accounts: Sequence[str], taxonomy: Taxonomy
) -> Counter[tuple[str, str, str]]:
    """Count stacks that end in a copy by (function, caller, account). Frames are leaf first."""
    counts: Counter[tuple[str, str, str]] = Counter()
    for frames in stacks:
        match = taxonomy.classify(frames)
        if match.category in accounts:
            caller = _caller(frames, match.symbol, match.category, taxonomy)
            counts[match.symbol, caller, match.category] += 1
    return counts


def most_frequent(counts: Counter[tuple[str, str, str]], seen_by: Literal["hook", "samples"]) -> Copier:
    """Return the copier that was seen in the most calls or samples."""
    ((function, within, account), count), *_ = counts.most_common(1)
    return Copier(function, within, account, seen_by, count)


def _caller(frames: Sequence[str], function: str, account: str, taxonomy: Taxonomy) -> str:
    """Return a function's nearest caller that is not part of the same copy."""
    rules = [taxonomy.find(frame) for frame in frames]
    leaf = next(index for index, (symbol, _) in enumerate(rules) if symbol == function)
    for symbol, rule in rules[leaf + 1 :]:
        if rule is None or (rule.kind != "transparent" and rule.category != account):
            return symbol
    return function


class Stacks:
    """Kernel stacks of one CPU, recorded inside `with calls()` or `with timer()`. read() returns them."""

    def __init__(self, functions: Iterable[str], is_preferred: Callable[[str], bool]) -> None:
        """Open a timer, and a hook on each of `functions` that this kernel has.

        If an address has several names, one for which `is_preferred` is true is chosen. Raises
        StacksUnreadableError.
        """
        self._cleanup = ExitStack()
        self._names = _KernelSymbols(is_preferred)
        page = mmap.PAGESIZE
        try:
            self._timer = self._open(SOFTWARE, CPU_CLOCK, PERIODS_NS[1])
            self._ring = mmap.mmap(self._timer, (1 + RING_PAGES) * page)
        except OSError as error:
            self._cleanup.close()
            raise StacksUnreadableError(f"perf_event_open: {error.strerror}; run as root") from None
        self._data_at, self._data_bytes = page, RING_PAGES * page
        self._cleanup.callback(self._ring.close)
        self._hooks = dict(self._hook(functions))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._cleanup.close()

    def _open(self, kind: int, config: int, period: int, name_address: int = 0) -> int:
        """Open a perf event on the sampled CPU. `name_address`: address of a kprobe's function name."""
        flags = DISABLED | EXCLUDE_USER | EXCLUDE_CALLCHAIN_USER
        sample = SAMPLE_TID | SAMPLE_CALLCHAIN
        attributes = struct.pack(
            "<IIQQQQQIIQQ", kind, ATTR_BYTES, config, period, sample, 0, flags, 0, 0, name_address, 0
        )
        fd = _libc.syscall(SYS_PERF_EVENT_OPEN, attributes, -1, sampled_cpu(), -1, 0)
        if fd < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        self._cleanup.callback(os.close, fd)
        return int(fd)

    def hooks(self, function: str) -> bool:
        """Return True if every call to the function is recorded."""
        return function in self._hooks

    def _hook(self, functions: Iterable[str]) -> Iterator[tuple[str, int]]:
        """Open a kprobe on each function that this kernel has. Closing its descriptor removes the kprobe."""
        if not KPROBE_TYPE_FILE.exists():
            return
        kind = int(KPROBE_TYPE_FILE.read_text())
        for name in sorted(functions):
            buffer = ctypes.create_string_buffer(name.encode())
            try:
                hook = self._open(kind, 0, 1, ctypes.addressof(buffer))
            except OSError:
                continue
            fcntl.ioctl(hook, IOC_SET_OUTPUT, self._timer)
            yield name, hook

    @contextmanager
    def calls(self) -> Iterator[None]:
        """Inside `with`, record a stack at each call to a hooked function."""
        yield from self._while_on(self._hooks.values())

    @contextmanager
    def timer(self, period_ns: int) -> Iterator[None]:
        """Inside `with`, record a kernel stack every `period_ns`."""
        fcntl.ioctl(self._timer, IOC_PERIOD, struct.pack("<Q", period_ns))
        yield from self._while_on([self._timer])

    def _while_on(self, events: Collection[int]) -> Iterator[None]:
        """Discard old stacks, and enable the events inside `with`."""
        self.read()
        for event in events:
            fcntl.ioctl(event, IOC_ENABLE, 0)
        try:
            yield
        finally:
            for event in events:
                fcntl.ioctl(event, IOC_DISABLE, 0)

    def read(self, pids: Collection[int] = ()) -> list[list[str]]:
        """Return these processes' stacks since the last read, each as function names, leaf first."""
        head, tail = struct.unpack_from("<QQ", self._ring, DATA_HEAD)
        stacks = []
        while tail < head:
            kind, _, size = struct.unpack("<IHH", self._bytes(tail, 8))
            if kind == RECORD_SAMPLE:
                words = struct.unpack(f"<{size // 8 - 1}Q", self._bytes(tail + 8, size - 8))
                if words[0] & PID_MASK in pids:
                    stacks.append(
                        [self._names.name_of(word) for word in words[2:] if word < CONTEXT_MARKS_FROM]
                    )
            tail += size
        struct.pack_into("<Q", self._ring, DATA_TAIL, tail)
        return stacks

    def _bytes(self, position: int, count: int) -> bytes:
        """Return bytes from the ring buffer, which wraps around."""
        offset = position % self._data_bytes
        first = min(count, self._data_bytes - offset)
        begin = self._data_at + offset
        return self._ring[begin : begin + first] + self._ring[self._data_at : self._data_at + count - first]


class _KernelSymbols:
    """Map from kernel addresses to function names."""

    def __init__(self, is_preferred: Callable[[str], bool]) -> None:
        # All addresses have 16 digits, so that sorting the text sorts the addresses.
        self._lines = sorted(KALLSYMS.read_text().splitlines())
        if not self._lines or self._lines[-1].startswith("0" * ADDRESS_DIGITS):
            raise StacksUnreadableError(f"{KALLSYMS} hides addresses; run as root")
        self._is_preferred = is_preferred
        self._cached: dict[int, str] = {}

    def name_of(self, address: int) -> str:
        if address not in self._cached:
            self._cached[address] = self._look_up(address)
        return self._cached[address]

    def _look_up(self, address: int) -> str:
        """Return the name of the last symbol that begins at or before an address."""
        end = begin = bisect_right(self._lines, f"{address:0{ADDRESS_DIGITS}x}~")
        start = self._lines[begin - 1][:ADDRESS_DIGITS]
        while begin and self._lines[begin - 1].startswith(start):
            begin -= 1
        names = [line[NAME_AT:].partition("\t")[0] for line in self._lines[begin:end]]
        return next((name for name in names if self._is_preferred(name)), names[0])
