# SPDX-License-Identifier: GPL-2.0-only
"""Processors of a machine: model, caches, core types, clock rate and PMUs, read from /proc and /sys."""

import contextlib
import re
from collections.abc import Collection
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from copyscope.base.spelling import SIZE_UNITS

# Directory that contains proc/ and sys/. Tests use another directory.
ROOT = Path("/")


def read_text(root: Path, path: str) -> str | None:
    """Return the stripped text of a file below `root`, or None if it is missing, empty or unreadable."""
    try:
        return (root / path).read_text(errors="replace").strip() or None
    except OSError:
        return None


def read_integer(root: Path, path: str) -> int | None:
    """Return the integer in a file below `root`, or None if the file is missing or has no integer."""
    text = read_text(root, path)
    return int(text) if text is not None and re.fullmatch(r"-?\d+", text) else None


def bracketed_choice(text: str | None) -> str | None:
    """Return the bracketed choice in a /sys file: `integrity` in `none [integrity] confidentiality`."""
    match = re.search(r"\[([^\]]+)\]", text or "")
    return match.group(1) if match else None


# Pattern of names of virtual machines in the firmware's sys_vendor and product_name.
VIRTUAL_FIRMWARE = (
    r"QEMU|KVM|VMware|VirtualBox|innotek|Virtual Machine|Amazon EC2|Google Compute|Xen|Parallels|Apple Virt"
)


def read_cpuinfo(root: Path) -> dict[str, str]:
    """Return the fields of the first processor in /proc/cpuinfo by name."""
    lines: list[str] = []
    with contextlib.suppress(OSError), (root / "proc/cpuinfo").open(errors="replace") as file:
        lines += takewhile(str.strip, file)
    pairs = (line.partition(":") for line in lines)
    return {key.strip(): value.strip() for key, colon, value in pairs if colon}


def read_cpu_model(root: Path = ROOT) -> str:
    """Return the model name of the CPU, or its implementer and part numbers if there is no name."""
    fields = read_cpuinfo(root)
    if "model name" in fields:
        return fields["model name"]
    if "CPU part" in fields:  # arm64 shows numbers only
        return f"ARM implementer {fields.get('CPU implementer', '?')} part {fields['CPU part']}"
    return read_text(root, "proc/device-tree/model") or "unknown"


def read_hypervisor(root: Path = ROOT) -> str | None:
    """Return the name of the hypervisor from the firmware, or None on bare metal.

    If only the CPU flags show a hypervisor, the result may say that the firmware does not name it.
    """
    xen_type = read_text(root, "sys/hypervisor/type")
    if xen_type:
        return xen_type
    firmware = [read_text(root, f"sys/class/dmi/id/{name}") for name in ("sys_vendor", "product_name")]
    vendor_and_product = " ".join(text for text in firmware if text)
    has_cpu_flag = "hypervisor" in read_cpuinfo(root).get("flags", "").split()
    # Bare-metal cloud hosts have product names such as `m5.metal`.
    if re.search(VIRTUAL_FIRMWARE, vendor_and_product) and "metal" not in vendor_and_product:
        return vendor_and_product
    return (vendor_and_product or "the firmware does not name it") if has_cpu_flag else None


def find_pmus(root: Path) -> list[str]:
    """Return the names of the PMUs of the CPU cores. A virtual machine may have none."""
    devices = (root / "sys/bus/event_source/devices").glob("*")
    return sorted(device.name for device in devices if device.name == "cpu" or (device / "cpus").exists())


def read_hybrid(root: Path = ROOT) -> dict[str, str] | None:
    """Map each core type to its CPU list, or return None if there is at most one type of core PMU."""
    pmus = {name: read_text(root, f"sys/bus/event_source/devices/{name}/cpus") for name in find_pmus(root)}
    cpus_by_type = {name: cpus for name, cpus in pmus.items() if cpus}
    return cpus_by_type if len(cpus_by_type) > 1 else None


def read_cpu_files(root: Path, name: str, cpus: Collection[int] = ()) -> str | None:
    """Return the text of the file `name` in the /sys folders of `cpus`, or of all CPUs if it is empty.

    Different texts are sorted and joined by commas.
    """
    folders = [f"cpu{number}" for number in cpus] or ["cpu[0-9]*"]
    cpu_root = root / "sys/devices/system/cpu"
    files = (file for folder in folders for file in cpu_root.glob(f"{folder}/{name}"))
    texts = {text for file in files if (text := read_text(file.parent, file.name)) is not None}
    return ", ".join(sorted(texts)) or None


def read_turbo(root: Path) -> bool | None:
    """Return True if turbo (boost) frequencies are enabled, or None if the kernel has no turbo switch."""
    disabled = read_integer(root, "sys/devices/system/cpu/intel_pstate/no_turbo")
    if disabled is not None:
        return disabled == 0
    boost = read_integer(root, "sys/devices/system/cpu/cpufreq/boost")
    return None if boost is None else boost != 0


def read_mitigations(root: Path) -> dict[str, str]:
    """Map each vulnerability that affects this CPU to the kernel's mitigation."""
    files = sorted((root / "sys/devices/system/cpu/vulnerabilities").glob("*"))
    texts = {file.name: read_text(file.parent, file.name) for file in files}
    return {name: text for name, text in texts.items() if text and text != "Not affected"}


def read_caches(root: Path) -> dict[str, int | str | None]:
    """Return the cache sizes of CPU 0 (l1d_bytes, l2_bytes, ...) and the CPUs that share its last cache."""
    caches: dict[str, int | str | None] = {}
    for index in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index[0-9]*")):
        level, kind, size = (read_text(index, name) for name in ("level", "type", "size"))
        match = re.fullmatch(r"(\d+)([KMG]?)", size or "")
        if match is None or level is None:
            continue
        suffix = {"Data": "d", "Instruction": "i"}.get(kind or "", "")
        size_bytes = int(match.group(1)) * SIZE_UNITS[match.group(2)]
        caches[f"l{level}{suffix}_bytes"] = size_bytes
        caches["last_level_shared_by_cpus"] = read_text(index, "shared_cpu_list")
    return caches


# Settings that determine the clock frequency of a CPU. Such settings can change while a run is measured.
#
# Sources: Documentation/admin-guide/pm/cpufreq.rst and intel_pstate.rst, drivers/thermal/intel/therm_throt.c,
# Documentation/userspace-api/sysfs-platform_profile.rst, Documentation/ABI/testing/sysfs-class-power.

POWER_SUPPLIES = "sys/class/power_supply"


@dataclass(frozen=True)
class ClockSettings:
    """Settings that determine the clock frequency. `throttles`: number of slowdowns by heat since boot."""

    governor: str | None
    energy_preference: str | None
    turbo: bool | None
    platform_profile: str | None
    on_battery: bool | None
    throttles: int | None


def read_clock(cpus: Collection[int] = (), root: Path = ROOT) -> ClockSettings:
    """Return the clock settings of `cpus`, or of all CPUs if it is empty. Missing settings are None."""
    return ClockSettings(
        governor=read_cpu_files(root, "cpufreq/scaling_governor", cpus),
        energy_preference=read_cpu_files(root, "cpufreq/energy_performance_preference", cpus),
        turbo=read_turbo(root),
        platform_profile=read_text(root, "sys/firmware/acpi/platform_profile"),
        on_battery=read_on_battery(root),
        throttles=read_throttles(root),
    )


def read_on_battery(root: Path = ROOT) -> bool | None:
    """Return True if the machine runs on battery, or None if it has no battery."""
    # Batteries of peripherals, such as a mouse, have the scope `Device`.
    supplies = [
        (read_text(supply, "type"), read_text(supply, "status"), read_integer(supply, "online"))
        for supply in (root / POWER_SUPPLIES).glob("*")
        if read_text(supply, "scope") != "Device"
    ]
    batteries = [status for kind, status, _ in supplies if kind == "Battery"]
    if not batteries:
        return None
    plugged_in = any(online for kind, _, online in supplies if kind != "Battery")
    return "Discharging" in batteries and not plugged_in


def read_throttles(root: Path = ROOT) -> int | None:
    """Return how often heat has throttled a core or a package since boot, or None if it is not counted."""
    counts: dict[tuple[str, str | None], int] = {}
    for file in (root / "sys/devices/system/cpu").glob("cpu[0-9]*/thermal_throttle/*_throttle_count"):
        count, topology = read_integer(file.parent, file.name), file.parents[1] / "topology"
        if count is not None:
            # All CPUs of a core show the count of the core, and all CPUs of a package that of the package.
            id_file = "core_cpus_list" if file.name.startswith("core") else "physical_package_id"
            key = id_file, read_text(topology, id_file)
            counts[key] = max(counts.get(key, 0), count)
    return sum(counts.values()) if counts else None
