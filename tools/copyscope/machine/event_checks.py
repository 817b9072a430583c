"""Results of `copyscope doctor --measure`, saved for each processor model and microcode."""

import re
from dataclasses import dataclass
from pathlib import Path

from msgspec import MsgspecError, json

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
    try:
        return json.decode(files.read(saved_file(cpu_model, microcode)), type=list[EventCheck])
    except (OSError, MsgspecError, UnicodeDecodeError):
        return None


def save(cpu_model: str, microcode: str | None, checks: list[EventCheck]) -> None:
    """Save the results for a processor. Raises OSError."""
    file = saved_file(cpu_model, microcode)
    files.make_directory(file.parent)
    files.save(file, json.format(json.encode(checks), indent=1))
