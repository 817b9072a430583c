"""Whether the CPUs' clock was another one during a run than before it, or is slowed down. Pure."""

from collections.abc import Iterator

from copyscope.record.sections import ClockState, MachineLoad

# Key of a state -> what it is called; one that changed was changed by somebody.
SETTINGS = {
    "governor": "governor",
    "turbo": "turbo",
    "energy_preference": "energy preference",
    "platform_profile": "platform profile",
}
WORDS = {True: "on", False: "off"}


def clock_sentence(read: MachineLoad) -> str | None:
    """The one caution of it; None where the clock was left alone, or nobody looked."""
    before, after = read.clock_before, read.clock_after
    if not before or not after:
        return None
    heat = (after.throttles or 0) - (before.throttles or 0)
    slowed = [f"heat slowed it down {'once' if heat == 1 else f'{heat} times'}"] if heat > 0 else []
    battery = ["on battery"] if before.on_battery or after.on_battery else []
    found = [*_changed(before, after), *slowed, *battery]
    if not found:
        return None
    again = " on mains power" if battery else " when it is cool" if slowed else ""
    return f"clock: {', '.join(found)}: repeat{again}"


def _changed(before: ClockState, after: ClockState) -> Iterator[str]:
    for key, name in SETTINGS.items():
        old, new = getattr(before, key), getattr(after, key)
        if old != new and None not in (old, new):
            yield f"{name} changed from {WORDS.get(old, old)} to {WORDS.get(new, new)}"
