"""What the kernel tells about the CPUs: model, core types, frequency, mitigations, caches, PMU."""

import contextlib
import re
from collections.abc import Collection
from itertools import takewhile
from pathlib import Path
from typing import Any

from copyscope.machine.files import ROOT, read_integer, read_text
from copyscope.units import SIZE_UNITS

VIRTUAL_FIRMWARE = (
    r"QEMU|KVM|VMware|VirtualBox|innotek|Virtual Machine|Amazon EC2|Google Compute|Xen|Parallels|Apple Virt"
)


def parse_cpu_list(text: str) -> list[int]:
    """`0-3,8` -> [0, 1, 2, 3, 8]."""
    cpus: list[int] = []
    for span in filter(None, text.split(",")):
        first, _, last = span.partition("-")
        cpus.extend(range(int(first), int(last or first) + 1))
    return cpus


def read_cpuinfo(root: Path) -> dict[str, str]:
    """The fields of the first processor in /proc/cpuinfo; those of the others are not read."""
    first: list[str] = []
    with contextlib.suppress(OSError), (root / "proc/cpuinfo").open(errors="replace") as file:
        first += takewhile(str.strip, file)
    pairs = (line.partition(":") for line in first)
    return {key.strip(): value.strip() for key, colon, value in pairs if colon}


def read_cpu_model(root: Path = ROOT) -> str:
    fields = read_cpuinfo(root)
    if "model name" in fields:
        return fields["model name"]
    if "CPU part" in fields:  # arm64 shows numbers only
        return f"PHASE implementer {fields.get('CPU implementer', '?')} part {fields['CPU part']}"
    return read_text(root, "proc/device-tree/model") or "unknown"


def read_hypervisor(root: Path = ROOT) -> str | None:
    """What the firmware says of a virtual machine, else only that there is one; None on bare metal."""
    named = read_text(root, "sys/hypervisor/type")
    if named:
        return named
    firmware = [read_text(root, f"sys/class/dmi/id/{name}") for name in ("sys_vendor", "product_name")]
    words = " ".join(word for word in firmware if word)
    flagged = "hypervisor" in read_cpuinfo(root).get("flags", "").split()
    if re.search(VIRTUAL_FIRMWARE, words) and "metal" not in words:  # bare-metal cloud hosts say `m5.metal`
        return words
    return (words or "the firmware does not name it") if flagged else None


def find_pmus(root: Path) -> list[str]:
    """The PMUs of the CPU cores; [] when this (virtual) machine has none."""
    devices = (root / "sys/bus/event_source/devices").glob("*")
    return sorted(one.name for one in devices if one.name == "cpu" or (one / "cpus").exists())


def read_hybrid(root: Path = ROOT) -> dict[str, str] | None:
    """Core type -> its CPUs where cores have PMUs of several types; None elsewhere."""
    pmus = {name: read_text(root, f"sys/bus/event_source/devices/{name}/cpus") for name in find_pmus(root)}
    found = {name: cpus for name, cpus in pmus.items() if cpus}
    return found if len(found) > 1 else None


def read_of_cpus(root: Path, name: str, cpus: Collection[int] = ()) -> str | None:
    """A file of each of these CPUs, or of all; several texts, comma separated, where they differ."""
    folders = [f"cpu{number}" for number in cpus] or ["cpu[0-9]*"]
    files = (file for one in folders for file in (root / "sys/devices/system/cpu").glob(f"{one}/{name}"))
    texts = {text for file in files if (text := read_text(file.parent, file.name)) is not None}
    return ", ".join(sorted(texts)) or None


def read_turbo(root: Path) -> bool | None:
    disabled = read_integer(root, "sys/devices/system/cpu/intel_pstate/no_turbo")
    if disabled is not None:
        return disabled == 0
    boost = read_integer(root, "sys/devices/system/cpu/cpufreq/boost")
    return None if boost is None else boost != 0


def read_mitigations(root: Path) -> dict[str, str]:
    """CPU vulnerability -> what is done about it; those that do not affect this CPU are left out."""
    files = sorted((root / "sys/devices/system/cpu/vulnerabilities").glob("*"))
    texts = {file.name: read_text(file.parent, file.name) for file in files}
    return {name: text for name, text in texts.items() if text and text != "Not affected"}


def read_caches(root: Path) -> dict[str, Any]:
    """The caches that CPU 0 uses: l1d_bytes, l2_bytes, l3_bytes and who shares the last one."""
    caches: dict[str, Any] = {}
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
