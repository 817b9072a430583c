"""What the plugin wrote: a line of JSON for each measurement, and one that says that this is all. Pure."""

import json
from dataclasses import dataclass
from typing import Any

from copyscope.errors import RunError
from copyscope.record.simulated import COUNTED

Counts = dict[str, int]


@dataclass(frozen=True)
class Stack:
    """What was counted in one function, called in one way: frames are addresses, the leaf first.

    executed: instructions, and of a repeated one each element.
    """

    side: str
    frames: tuple[str, ...]
    counts: Counts
    executed: int


@dataclass(frozen=True)
class Measurement:
    stacks: tuple[Stack, ...]
    lost: Counts
    digest: str


def parse(text: str) -> list[Measurement]:
    """All measurements of a boot. Raises RunError for what is not whole: nothing of it is taken."""
    lines = [line for line in text.split("\n") if line]
    try:
        rows = [json.loads(line) for line in lines]
        if any("error" in row for row in rows):
            said = next(row["error"] for row in rows if "error" in row)
            raise RunError(f"simulator: {str(said).removeprefix('simulator: ')}")
        if not rows or rows[-1].get("end") is not True or rows[-1]["measurements"] != len(rows) - 1:
            raise RunError("simulator: its output has no end, the guest was killed: none of it is used")
        return [_measurement(row) for row in rows[:-1]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise RunError(f"simulator: an output that cannot be read: {error!r}") from error


def _measurement(row: dict[str, Any]) -> Measurement:
    columns = row["columns"]
    stacks = tuple(
        Stack(
            str(one["side"]),
            tuple(map(str, one["frames"])),
            {name: int(count) for name, count in zip(columns, one["counts"], strict=True)},
            int(one["executed"]),
        )
        for one in row["stacks"]
    )
    for name in COUNTED:
        if name not in columns:
            raise RunError(f"simulator: its output has no column {name}: build it anew")
    lost = {str(name): int(count) for name, count in row["lost"].items()}
    return Measurement(stacks, lost, str(row["digest"]))
