"""The events that are sampled and counted, and the columns of a row that come from them. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence

# the columns of a row that come from hardware events: key of the row -> names that perf gives the event
EVENT_COLUMNS: dict[str, tuple[str, ...]] = {
    "cycles": ("cycles", "cpu-cycles"),
    "instructions": ("instructions",),
    "l1d_misses": ("L1-dcache-load-misses",),
    "llc_misses": ("LLC-load-misses",),
}

# Events whose shares are shares of time, best first. ref-cycles go at one rate on every core, whatever its
# type and clock. cpu-clock is charged to where interrupts come on again, while cycles interrupt even code
# that has them off; but it is there only where cycles do not show time (open_time() of the sampler).
TIME_EVENTS = (("ref-cycles",), ("cpu-clock", "task-clock"), EVENT_COLUMNS["cycles"])


def time_names(sampled: Iterable[str], statuses: Mapping[str, str]) -> tuple[str, ...] | None:
    """The names of the event that divides time, of those that were sampled; None: there is none.

    statuses: of events, as far as they are known; one that was sampled on some CPUs only divides nothing.
    """
    usable = {name for name in map(event_name, sampled) if statuses.get(name, "sampled") == "sampled"}
    return next((names for names in TIME_EVENTS if usable & set(names)), None)


def in_time(event: str, units: Mapping[str, str]) -> bool:
    """Whether the weights of an event are time. units: of events, as they were sampled."""
    return units.get(event) == "ns"


def divided_by(names: Sequence[str], units: Mapping[str, str]) -> Sequence[str]:
    """The names of the event whose samples divide a counted one: of cycles those of ref-cycles where they are
    sampled instead, which is where all cores are alike (cycles_are_spared() of the sampler)."""
    spared = tuple(names) == EVENT_COLUMNS["cycles"] and in_time("ref-cycles", units)
    return TIME_EVENTS[0] if spared else names


def event_name(name: str) -> str:
    """`cpu_core/cycles/u` and `cycles:k` are both `cycles`: without the counting unit and the modifiers."""
    inner = re.fullmatch(r"[\w.-]+/([^/]+)/\w*", name)
    return (inner.group(1) if inner else name).split(":")[0]
