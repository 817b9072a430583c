"""The machine that is modelled: presets of real ones with their sources, this one's, or one of your own."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from copyscope.errors import UsageError
from copyscope.units import SIZE_UNITS

VCPUS_MAX = 8
LINE_MIN_BYTES, LINE_MAX_BYTES = 16, 256
# The plugin's own numbers; larger ones are no machine.
SIZE_MAX_BYTES = 4 << 30
WAYS_MAX = 4096
LEVELS = ("l1d", "l2", "llc")
# What can be changed beside them: numbers by their fields, and choices. `ddio`: where the lines go that a
# device writes: to memory, to the LLC, or nobody looks.
NUMBERS = {"line": "line_bytes", "vcpus": "vcpus"}
CHOICES = {
    "inclusion": ("inclusive", "victim"),
    "prefetch": ("off", "next"),
    "ddio": ("unseen", "off", "on"),
}
TLB = re.compile(r"\d{1,5}:\d{1,5}(/\d{1,5}:\d{1,5}){2}")
SYSFS = Path("/sys/devices/system/cpu/cpu0/cache")
HOST = "host"


@dataclass(frozen=True)
class Level:
    """One cache; a size of 0 means that there is none."""

    size_bytes: int
    ways: int

    def __str__(self) -> str:
        for unit in ("M", "K"):
            if self.size_bytes and self.size_bytes % SIZE_UNITS[unit] == 0:
                return f"{self.size_bytes // SIZE_UNITS[unit]}{unit}:{self.ways}"
        return f"{self.size_bytes}:{self.ways}"


@dataclass(frozen=True)
class Model:
    """What the plugin models. `tlb`: entries:ways of L1 for 4 KiB pages / L1 for 2 MiB / L2."""

    name: str
    source: str
    l1d: Level
    l2: Level
    llc: Level
    inclusion: str = "inclusive"
    line_bytes: int = 64
    tlb: str = "64:4/32:4/2048:16"
    prefetch: str = "off"
    ddio: str = "unseen"
    vcpus: int = 2

    def options(self) -> list[tuple[str, str]]:
        """The options of the plugin."""
        return [
            *((level, str(getattr(self, level))) for level in LEVELS),
            ("line", str(self.line_bytes)),
            ("inclusion", self.inclusion),
            ("vcpus", str(self.vcpus)),
            ("prefetch", self.prefetch),
            ("ddio", self.ddio),
            ("tlb", self.tlb),
        ]


def read_level(text: str) -> Level:
    """SIZE:WAYS, such as 48K:12. Raises ValueError."""
    found = re.fullmatch(r"(\d{1,12})([KMG]?):(\d{1,5})", text)
    if found is None:
        raise ValueError(f"{text}: not SIZE:WAYS, such as 48K:12")
    return Level(int(found[1]) * SIZE_UNITS[found[2]], int(found[3]))


# Name, L1D, L2, LLC, what the LLC holds, TLB; and where that is from.
TABLE = """\
generic          32K:8   1M:16  32M:16   inclusive  64:4/32:4/2048:16
    no machine: two cores with 32 KiB and 1 MiB each, 32 MiB shared
sapphire-rapids  48K:12  2M:16  105M:15  victim     96:6/32:4/2048:16
    Xeon Platinum 8480+, one socket: Intel Optimization Reference Manual (Golden Cove)
genoa            32K:8   1M:8   32M:16   victim     72:72/72:72/3072:24
    EPYC 9004: AMD Software Optimization Guide for Zen 4 (57647); LLC of one core complex
graviton3        64K:4   1M:8   32M:16   victim     40:40/40:40/2048:4
    Phase Neoverse V1 Technical Reference Manual; LLC: 32 MiB system level cache; the code is x86-64
laptop           32K:8   512K:8 16M:16   victim     64:64/64:64/2048:16
    Ryzen 7 5800U: AMD Software Optimization Guide for Zen 3 (56665)
"""


def _presets() -> Iterator[Model]:
    lines = iter(TABLE.splitlines())
    for row, source in zip(lines, lines, strict=True):
        name, l1d, l2, llc, inclusion, tlb = row.split()
        yield Model(
            name, source.strip(), read_level(l1d), read_level(l2), read_level(llc), inclusion, tlb=tlb
        )


PRESETS: Mapping[str, Model] = {model.name: model for model in _presets()}


def parse(text: str, sysfs: Path = SYSFS) -> Model:
    """`PRESET`, `host`, or one of them with changes: `genoa,llc=64M:16,prefetch=next`. Raises UsageError."""
    name, *changes = text.split(",")
    if name == HOST:
        model = of_host(sysfs)
    elif name in PRESETS:
        model = PRESETS[name]
    else:
        raise UsageError(f"--cache: {name}: use {', '.join(PRESETS)} or {HOST}")
    for change in changes:
        model = _changed(model, change)
    if changes:
        model = replace(model, name=text)
    check(model)
    return model


def _changed(model: Model, change: str) -> Model:
    key, _, value = change.partition("=")
    made: dict[str, Any] = {}
    try:
        if key in LEVELS:
            made[key] = read_level(value)
        elif key in NUMBERS:
            made[NUMBERS[key]] = int(value[:9])
    except ValueError as error:
        raise UsageError(f"--cache: {key}: {error}") from None
    if value in CHOICES.get(key, ()) or (key == "tlb" and TLB.fullmatch(value)):
        made[key] = value
    if not made:
        known = ", ".join((*LEVELS, *NUMBERS, "tlb", *CHOICES))
        raise UsageError(f"--cache: {change}: use one of {known} with =VALUE")
    return replace(model, **made)


def check(model: Model) -> None:
    """Raises UsageError for what no plugin could model."""
    line = model.line_bytes
    if line & (line - 1) or not LINE_MIN_BYTES <= line <= LINE_MAX_BYTES:
        raise UsageError(
            f"--cache: line={line}: not a power of 2 between {LINE_MIN_BYTES} and {LINE_MAX_BYTES}"
        )
    if not 1 <= model.vcpus <= VCPUS_MAX:
        raise UsageError(f"--cache: vcpus={model.vcpus}: not between 1 and {VCPUS_MAX}")
    for name in LEVELS:
        level: Level = getattr(model, name)
        if name == "llc" and level == Level(0, 0):
            continue
        if not 1 <= level.ways <= WAYS_MAX or not 0 < level.size_bytes <= SIZE_MAX_BYTES:
            raise UsageError(f"--cache: {name}={level}: not a size of up to 4G and up to {WAYS_MAX} ways")
        if level.size_bytes % (level.ways * line):
            raise UsageError(
                f"--cache: {name}={level}: {level.size_bytes:,} bytes are not divisible"
                f" into {level.ways} ways of lines of {line} bytes"
            )


def of_host(sysfs: Path) -> Model:
    """The caches of this machine's first CPU (Documentation/ABI/testing/sysfs-devices-system-cpu)."""
    found: dict[int, Level] = {}
    line = 64
    for index in sorted(sysfs.glob("index[0-9]*")):
        try:
            if (index / "type").read_text().strip() == "Instruction":
                continue
            level = int((index / "level").read_text())
            size = (index / "size").read_text().strip()
            ways = int((index / "ways_of_associativity").read_text())
            line = int((index / "coherency_line_size").read_text())
            found[level] = read_level(f"{size}:{ways}")
        except (OSError, ValueError) as error:
            raise UsageError(
                f"--cache: {HOST}: {index}: {error}: this machine does not report its caches: use a preset"
            ) from None
    if 1 not in found or 2 not in found:
        raise UsageError(f"--cache: {HOST}: {sysfs}: this machine does not report its caches: use a preset")
    llc = max(found)
    return Model(
        HOST,
        f"this machine's, from {sysfs}, which does not show its TLB, or whether the last level is inclusive",
        found[1],
        found[2],
        found[llc] if llc > 2 else Level(0, 0),
        line_bytes=line,
    )
