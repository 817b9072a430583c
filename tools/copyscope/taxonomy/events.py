"""The events that are sampled and counted, and the columns of a row that come from them. Pure."""

import re

# the columns of a row that come from hardware events: key of the row -> names that perf gives the event
EVENT_COLUMNS: dict[str, tuple[str, ...]] = {
    "cycles": ("cycles", "cpu-cycles"),
    "instructions": ("instructions",),
    "l1d_misses": ("L1-dcache-load-misses",),
    "llc_misses": ("LLC-load-misses",),
}

# events whose shares are shares of time, best first: cycles interrupt even code that has interrupts off,
# cpu-clock is charged to where they come on again
TIME_EVENTS = (EVENT_COLUMNS["cycles"], ("cpu-clock", "task-clock"))


def event_name(name: str) -> str:
    """`cpu_core/cycles/u` and `cycles:k` are both `cycles`: without the counting unit and the modifiers."""
    inner = re.fullmatch(r"[\w.-]+/([^/]+)/\w*", name)
    return (inner.group(1) if inner else name).split(":")[0]
