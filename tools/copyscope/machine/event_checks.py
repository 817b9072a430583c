# SPDX-License-Identifier: GPL-2.0-only
"""Results of `copyscope doctor --measure`, saved for each processor model and microcode."""

import json
import re
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from copyscope.base import files, paths


@dataclass(frozen=True)
class EventCheck:
    """Comparison of an event with known work. docs/reference/record.md explains the keys (`PmuCheck`)."""

    event: str
    usable: bool | None
    verdict: str
    known_share: float | None = None
    copy_share: float | None = None
    pmu: str | None = None


def saved_file(cpu_model: str, microcode: str | None) -> Path:
    """Return the path of the results for a processor. An update of the microcode changes the path."""
    name = re.sub(r"[^A-Za-z0-9.]+", "-", f"{cpu_model} {microcode or 'unknown'}")
    return paths.cache_directory() / "pmu" / f"{name}.json"


def load(cpu_model: str, microcode: str | None) -> list[EventCheck] | None:
    """Return the saved results for a processor, or None if there are none or the file is damaged."""
    # Help is printed by the system's Python, too, which lacks msgspec.
    from msgspec import MsgspecError, convert  # noqa: PLC0415

    try:
        return convert(json.loads(files.read(saved_file(cpu_model, microcode))), list[EventCheck])
    except (OSError, ValueError, RecursionError, MsgspecError):
        return None


def save(cpu_model: str, microcode: str | None, checks: Sequence[EventCheck]) -> None:
    """Save the results for a processor. Raises OSError."""
    file = saved_file(cpu_model, microcode)
    files.make_directory(file.parent)
    files.save(file, json.dumps([asdict(check) for check in checks], indent=1).encode())
