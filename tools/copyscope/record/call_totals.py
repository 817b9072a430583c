"""How many calls of each name a sender of ours says that it made. Pure."""

from collections import Counter
from collections.abc import Iterable, Mapping


def kernel_name(syscall: str) -> str:
    """The C library's send() and recv() are the system calls sendto and recvfrom."""
    return {"send": "sendto", "recv": "recvfrom"}.get(syscall, syscall)


def sends_made(totals: Iterable[Mapping[str, int]]) -> Counter[str]:
    """The `send_syscalls` of several segments, added up by the kernel's names."""
    made: Counter[str] = Counter()
    for syscall, calls in (pair for total in totals for pair in total.items()):
        made[kernel_name(syscall)] += calls
    return made
