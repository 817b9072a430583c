"""Which function of the kernel copied what was sent: by hooks on what copies, else by samples."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from copyscope.drill.kernel_stacks import Stacks
from copyscope.taxonomy.taxonomy import Taxonomy, is_glob

# The accounts of a copy that is over when the call returns, and of one that comes later.
COPYING: Mapping[str, tuple[str, ...]] = {
    "copied before return": ("copy_in", "encrypt", "silent"),
    "late copy": ("deferred",),
}
HOOKED_ACCOUNTS = ("copy_in", "encrypt", "deferred")
COPIES_LATER = "skb_copy_ubufs"  # nothing else does
HOOKED_SENDS = 3
# On a slow machine the sends count.
SAMPLED_SENDS, SAMPLED_S, SAMPLES_ENOUGH, SAMPLES_AT_LEAST = 100, 0.4, 20, 3
# A timer that is faster than its own handler leaves an emulated processor no time for anything else.
PERIODS_NS = (50_000, 1_000_000)


@dataclass(frozen=True)
class Copier:
    """A function, and the one for which it copied."""

    function: str
    within: str
    account: str
    seen_by: Literal["hook", "samples"]
    count: int  # calls that were hooked, or samples


def hookable(taxonomy: Taxonomy) -> frozenset[str]:
    """Functions whose calls are copies. What copies in lib/ has no place for a hook on any kernel."""
    return frozenset(
        rule.pattern
        for rule in taxonomy.rules
        if rule.category in HOOKED_ACCOUNTS
        and rule.kind in ("inclusive", "owner")
        and not is_glob(rule.pattern)
    )


def find(stacks: Stacks, repeat: Callable[[], object], result: str, taxonomy: Taxonomy) -> Copier | None:
    """Who copies while `repeat` sends; None: nobody was seen, or nothing is copied."""
    accounts = COPYING.get(result)
    if accounts is None:
        return None
    with stacks.calls():
        began = time.thread_time_ns()
        for _ in range(HOOKED_SENDS):
            repeat()
        send_ns = (time.thread_time_ns() - began) // HOOKED_SENDS
    seen = copies(stacks.read(), accounts, taxonomy)
    if seen:
        return most_frequent(seen, "hook")
    if result == "late copy" and stacks.hooks(COPIES_LATER):
        return None
    sends, until = 0, time.monotonic() + SAMPLED_S
    with stacks.timer(min(max(send_ns, PERIODS_NS[0]), PERIODS_NS[1])):
        while seen.total() < SAMPLES_ENOUGH and (sends < SAMPLED_SENDS or time.monotonic() < until):
            repeat()
            sends += 1
            seen += copies(stacks.read(), accounts, taxonomy)
    return most_frequent(seen, "samples") if seen.total() >= SAMPLES_AT_LEAST else None


def copies(
    stacks: Iterable[Sequence[str]], accounts: Sequence[str], taxonomy: Taxonomy
) -> Counter[tuple[str, str, str]]:
    """(function, what it is in, account) of the stacks, leaf first, in which something copies."""
    seen: Counter[tuple[str, str, str]] = Counter()
    for frames in stacks:
        decided = taxonomy.classify(frames)
        if decided.category in accounts:
            around = _around(frames, decided.symbol, decided.category, taxonomy)
            seen[decided.symbol, around, decided.category] += 1
    return seen


def most_frequent(seen: Counter[tuple[str, str, str]], seen_by: Literal["hook", "samples"]) -> Copier:
    ((function, within, account), count), *_ = seen.most_common(1)
    return Copier(function, within, account, seen_by, count)


def _around(frames: Sequence[str], function: str, account: str, taxonomy: Taxonomy) -> str:
    """The first function around it that is not of the same copy."""
    found = [taxonomy.find(frame) for frame in frames]
    place = next(index for index, (symbol, _) in enumerate(found) if symbol == function)
    for symbol, rule in found[place + 1 :]:
        if rule is None or (rule.kind != "transparent" and rule.category != account):
            return symbol
    return function
