# SPDX-License-Identifier: GPL-2.0-only
"""Slowdown of a run's CPUs by hyper-thread siblings, CPU quotas and the CPU clock. Pure."""

from collections.abc import Callable, Iterator, Mapping

from copyscope.record.sections import ClockState, MachineLoad

CLOCK_UNREAD = "the clock's settings were not read"
SIBLINGS_UNREAD = "the load of hyper-thread siblings was not read"
QUOTAS_UNREAD = "the CPU quotas of cgroups were not read"
NO_STOPS = "no CPU quota stopped the measured processes"


def siblings_share(load: MachineLoad) -> float | None:
    """Return the share (0..1) of the hyper-thread siblings that other programs took, or None if unknown.

    A busy sibling slows down the CPU of a measured process, because both share one core. copyscope and the
    peers of the processes may run on the siblings, so their CPU time is subtracted.
    """
    if load.siblings_ns is None:
        return None
    siblings_wall_ns = (load.siblings or 0) * (load.wall_ns or 0)
    others_ns = load.siblings_ns - (load.own_ns or 0) - load.peers_ns
    return min(1.0, max(0, others_ns) / siblings_wall_ns) if siblings_wall_ns else 0.0


def describe_quota(load: MachineLoad) -> str | None:
    """Return how long the CPU quota of a cgroup stopped the processes, or None if no quota did.

    The time is summed over CPUs, so it may exceed the elapsed time.
    """
    if not load.quotas:
        return None
    longest = load.quotas[0]
    stopped_s, elapsed_s = longest.stopped_ns / 1e9, (load.wall_ns or 0) / 1e9
    over_cpus = ", summed over CPUs" if stopped_s > elapsed_s else ""
    return (
        f"the CPU quota of cgroup {longest.cgroup} stopped threads for {stopped_s:.1f} s of {elapsed_s:.1f} s"
        f"{over_cpus}: raise cpu.max or measure outside of the cgroup"
    )


# Settings of the CPU clock. If a setting changed during a run, another program or a person changed it.
SETTINGS: Mapping[str, Callable[[ClockState], str | bool | None]] = {
    "governor": lambda clock: clock.governor,
    "turbo": lambda clock: clock.turbo,
    "energy preference": lambda clock: clock.energy_preference,
    "platform profile": lambda clock: clock.platform_profile,
}
ON_OFF = {True: "on", False: "off"}


def describe_clock(load: MachineLoad) -> str | None:
    """Return a caution about the CPU clock, or None if the clock was undisturbed or was not read."""
    before, after = load.clock_before, load.clock_after
    if not before or not after:
        return None
    throttles = (after.throttles or 0) - (before.throttles or 0)
    times = "once" if throttles == 1 else f"{throttles} times"
    slowed = [f"heat slowed it down {times}"] if throttles > 0 else []
    battery = ["on battery"] if before.on_battery or after.on_battery else []
    disturbances = [*_changed_settings(before, after), *slowed, *battery]
    if not disturbances:
        return None
    condition = " on mains power" if battery else " when it is cool" if slowed else ""
    return f"clock: {', '.join(disturbances)}: repeat{condition}"


def _changed_settings(before: ClockState, after: ClockState) -> Iterator[str]:
    for name, setting in SETTINGS.items():
        old, new = setting(before), setting(after)
        if old is not None and new is not None and old != new:
            yield f"{name} changed from {_setting_text(old)} to {_setting_text(new)}"


def _setting_text(value: str | bool) -> str:
    return ON_OFF[value] if isinstance(value, bool) else value
