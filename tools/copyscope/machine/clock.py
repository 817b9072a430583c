"""What decides how fast the clock of a CPU is, as it can be changed while a run is measured.

Documentation/admin-guide/pm/cpufreq.rst and intel_pstate.rst; counts: drivers/thermal/intel/therm_throt.c;
Documentation/userspace-api/sysfs-platform_profile.rst, Documentation/ABI/testing/sysfs-class-power.
"""

from collections.abc import Collection
from pathlib import Path
from typing import Any

from copyscope.machine.cpu import read_of_cpus, read_turbo
from copyscope.machine.files import ROOT, read_integer, read_text

POWER = "sys/class/power_supply"


def read_clock(cpus: Collection[int] = (), root: Path = ROOT) -> dict[str, Any]:
    """Of these CPUs, or of all; None for what this machine does not have."""
    return {
        "governor": read_of_cpus(root, "cpufreq/scaling_governor", cpus),
        "energy_preference": read_of_cpus(root, "cpufreq/energy_performance_preference", cpus),
        "turbo": read_turbo(root),
        "platform_profile": read_text(root, "sys/firmware/acpi/platform_profile"),
        "on_battery": read_on_battery(root),
        "throttles": read_throttles(root),
    }


def read_on_battery(root: Path = ROOT) -> bool | None:
    """Whether a battery is used up; None without one. Those of a mouse have the scope Device."""
    supplies = [
        (read_text(one, "type"), read_text(one, "status"), read_integer(one, "online"))
        for one in (root / POWER).glob("*")
        if read_text(one, "scope") != "Device"
    ]
    batteries = [status for kind, status, _ in supplies if kind == "Battery"]
    if not batteries:
        return None
    plugged_in = any(online for kind, _, online in supplies if kind != "Battery")
    return "Discharging" in batteries and not plugged_in


def read_throttles(root: Path = ROOT) -> int | None:
    """How often heat has slowed a core or a package down since boot; None where nobody counts that."""
    counts: dict[tuple[str, str | None], int] = {}
    for file in (root / "sys/devices/system/cpu").glob("cpu[0-9]*/thermal_throttle/*_throttle_count"):
        count, topology = read_integer(file.parent, file.name), file.parents[1] / "topology"
        if count is not None:
            of = "core_cpus_list" if file.name.startswith("core") else "physical_package_id"
            # Each CPU of a core shows its core's count, and each of a package the package's.
            key = of, read_text(topology, of)
            counts[key] = max(counts.get(key, 0), count)
    return sum(counts.values()) if counts else None
