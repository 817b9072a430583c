# SPDX-License-Identifier: GPL-2.0-only
"""Choose the cache model of a simulated machine: a preset with its source, or the caches of this machine."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from copyscope.base.errors import UsageError, out_of_range
from copyscope.base.spelling import SIZE_UNITS, alternatives

VCPUS_MAX = 8
LINE_MIN_BYTES, LINE_MAX_BYTES = 16, 256
# Largest size in bytes of a cache level, and largest number of ways, in the plugin.
SIZE_MAX_BYTES = 4 << 30
WAYS_MAX = 4096
LEVELS = ("l1d", "l2", "llc")
# Other options than the levels: field of each option with a number, and values of each option with a choice.
# `ddio`: a device writes to memory (off), to the LLC (on), or is not modelled (unseen).
NUMBER_FIELDS = {"line": "line_bytes", "vcpus": "vcpus"}
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
    """Cache level. A size of 0 means that the machine lacks this level."""

    size_bytes: int
    ways: int

    def __str__(self) -> str:
        for unit in ("M", "K"):
            if self.size_bytes and self.size_bytes % SIZE_UNITS[unit] == 0:
                return f"{self.size_bytes // SIZE_UNITS[unit]}{unit}:{self.ways}"
        return f"{self.size_bytes}:{self.ways}"


@dataclass(frozen=True)
class CacheModel:
    """Caches and TLBs that the plugin models.

    tlb: entries:ways of L1 for 4 KiB pages / L1 for 2 MiB pages / L2
    """

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
        """Return the model as options for the plugin: pairs (name, value)."""
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
    """Parse a cache level SIZE:WAYS, such as 48K:12. Raises ValueError."""
    match = re.fullmatch(r"(\d{1,12})([KMG]?):(\d{1,5})", text)
    if match is None:
        raise ValueError(f"{text}: not SIZE:WAYS; write a level such as 48K:12")
    return Level(int(match[1]) * SIZE_UNITS[match[2]], int(match[3]))


# Presets. First line: name, L1D, L2, LLC, inclusion of the LLC, TLB. Second line: source of the numbers.
TABLE = """\
generic          32K:8   1M:16  32M:16   inclusive  64:4/32:4/2048:16
    no machine: two cores with 32 KiB and 1 MiB each, 32 MiB shared
sapphire-rapids  48K:12  2M:16  105M:15  victim     96:6/32:4/2048:16
    Xeon Platinum 8480+, one socket: Intel Optimization Reference Manual (Golden Cove)
genoa            32K:8   1M:8   32M:16   victim     72:72/72:72/3072:24
    EPYC 9004: AMD Software Optimization Guide for Zen 4 (57647); LLC of one core complex
graviton3        64K:4   1M:8   32M:16   victim     40:40/40:40/2048:4
    Arm Neoverse V1 Technical Reference Manual; LLC: 32 MiB system level cache; the code is x86-64
laptop           32K:8   512K:8 16M:16   victim     64:64/64:64/2048:16
    Ryzen 7 5800U: AMD Software Optimization Guide for Zen 3 (56665)
"""


def _presets() -> Iterator[CacheModel]:
    """Yield the cache models in TABLE."""
    lines = iter(TABLE.splitlines())
    for row, source in zip(lines, lines, strict=True):
        name, l1d, l2, llc, inclusion, tlb = row.split()
        yield CacheModel(
            name, source.strip(), read_level(l1d), read_level(l2), read_level(llc), inclusion, tlb=tlb
        )


PRESETS: Mapping[str, CacheModel] = {model.name: model for model in _presets()}


def parse(text: str, sysfs: Path = SYSFS) -> CacheModel:
    """Parse a value of --cache: `PRESET` or `host`, with changes, as in `genoa,llc=64M:16,prefetch=next`.

    Raises UsageError.
    """
    name, *changes = text.split(",")
    if name == HOST:
        model = read_host_caches(sysfs)
    elif name in PRESETS:
        model = PRESETS[name]
    else:
        raise UsageError(f"--cache {name}: unknown model; choose {alternatives((*PRESETS, HOST))}")
    for change in changes:
        model = _apply_change(model, change)
    if changes:
        model = replace(model, name=text)
    check(model)
    return model


def _apply_change(model: CacheModel, change: str) -> CacheModel:
    """Return a model with one change, `KEY=VALUE`, applied. Raises UsageError."""
    key, _, value = change.partition("=")
    try:
        if key in LEVELS:
            return CacheModel(**{**vars(model), key: read_level(value)})
        if key in NUMBER_FIELDS:
            return CacheModel(**{**vars(model), NUMBER_FIELDS[key]: int(value[:9])})
    except ValueError as error:
        raise UsageError(f"--cache {key}: {error}") from None
    if value in CHOICES.get(key, ()) or (key == "tlb" and TLB.fullmatch(value)):
        return CacheModel(**{**vars(model), key: value})
    keys = ", ".join((*LEVELS, *NUMBER_FIELDS, "tlb", *CHOICES))
    raise UsageError(f"--cache {change}: unknown change; choose one of {keys} with =VALUE")


def check(model: CacheModel) -> None:
    """Raise UsageError for a model that the plugin does not support."""
    line = model.line_bytes
    if line & (line - 1) or not LINE_MIN_BYTES <= line <= LINE_MAX_BYTES:
        raise UsageError(
            f"--cache line={line}: not a power of 2 from {LINE_MIN_BYTES} to {LINE_MAX_BYTES}; choose 64"
        )
    if not 1 <= model.vcpus <= VCPUS_MAX:
        raise UsageError(out_of_range("--cache", f"vcpus={model.vcpus}", 1, VCPUS_MAX))
    for name in LEVELS:
        level: Level = getattr(model, name)
        if name == "llc" and level == Level(0, 0):
            continue
        if not 1 <= level.ways <= WAYS_MAX or not 0 < level.size_bytes <= SIZE_MAX_BYTES:
            raise UsageError(
                f"--cache {name}={level}: out of range; choose up to 4G and up to {WAYS_MAX} ways"
            )
        if level.size_bytes % (level.ways * line):
            raise UsageError(
                f"--cache {name}={level}: {level.size_bytes:,} bytes are not divisible"
                f" into {level.ways} ways of lines of {line} bytes"
            )


def read_host_caches(sysfs: Path) -> CacheModel:
    """Return the caches of this machine's first CPU (Documentation/ABI/testing/sysfs-devices-system-cpu)."""
    levels: dict[int, Level] = {}
    line = 64
    for index in sorted(sysfs.glob("index[0-9]*")):
        try:
            if (index / "type").read_text().strip() == "Instruction":
                continue
            level = int((index / "level").read_text())
            size = (index / "size").read_text().strip()
            ways = int((index / "ways_of_associativity").read_text())
            line = int((index / "coherency_line_size").read_text())
            levels[level] = read_level(f"{size}:{ways}")
        except (OSError, ValueError) as error:
            raise UsageError(
                f"--cache {HOST}: {index}: {error}: this machine does not report its caches; use a preset"
            ) from None
    if 1 not in levels or 2 not in levels:
        raise UsageError(f"--cache {HOST}: {sysfs}: this machine does not report its caches; use a preset")
    llc = max(levels)
    return CacheModel(
        HOST,
        f"this machine's, from {sysfs}, which does not show its TLB, or whether the last level is inclusive",
        levels[1],
        levels[2],
        levels[llc] if llc > 2 else Level(0, 0),
        line_bytes=line,
    )
