# SPDX-License-Identifier: GPL-2.0-only
"""Parse the output of the QEMU plugin, and find the symbol names of addresses. Pure."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from msgspec import MsgspecError, Struct, json

from copyscope.base.errors import RunError
from copyscope.record.simulated import COUNTED
from copyscope.taxonomy.taxonomy import Taxonomy

UNKNOWN_ROOT = "0"


def name_addresses(text: str, is_known: Callable[[str], bool]) -> dict[str, str]:
    """Map addresses (16 hex digits) to names. If names share an address, prefer one that `is_known`."""
    names: dict[str, str] = {}
    for line in text.splitlines():
        words = line.split()
        if len(words) < 3:
            continue
        address, name = words[0].zfill(16), words[2]
        earlier = names.get(address)
        if earlier is None or (not is_known(earlier) and is_known(name)):
            names[address] = name
    return names


def name_stack(addresses: tuple[str, ...], names: dict[str, str]) -> list[str]:
    """Return the function names of a stack, leaf first. An address without a name becomes `[ADDRESS]`."""
    return [names.get(address.zfill(16), f"[{address}]") for address in addresses if address != UNKNOWN_ROOT]


def name_symbols(texts: Iterable[str], taxonomy: Taxonomy) -> dict[str, str]:
    """Map addresses to names. `texts`: symbols of the kernel, and of the modules in one boot."""
    return name_addresses("\n".join(texts), lambda name: taxonomy.find(name)[1] is not None)


# The output of the plugin has a line of JSON for each measurement, and a last line that marks the end.

Counts = dict[str, int]


@dataclass(frozen=True)
class CountedStack:
    """Counts of a function for one call stack. `frames`: addresses, leaf first.

    `executed`: number of executed instructions, counting each repetition of a `rep` instruction.
    """

    side: str
    frames: tuple[str, ...]
    counts: Counts
    executed: int


@dataclass(frozen=True)
class MeasuredStacks:
    """Counts of all stacks in one measurement of one boot, and a hash of these counts.

    lost: number of events that the plugin could not trace, by kind of event
    """

    stacks: tuple[CountedStack, ...]
    lost: Counts
    digest: str


class StackLine(Struct):
    """Counts of a function for one call stack, as the plugin writes them: a value per column."""

    side: str
    frames: list[str]
    counts: list[int]
    executed: int


class PluginLine(Struct):
    """Line of the plugin's output: a measurement, an error, or the end and the number of measurements."""

    error: str | None = None
    end: bool = False
    measurements: int | None = None
    columns: list[str] = []
    stacks: list[StackLine] = []
    # Number of lost events by kind; `memory` is true if memory ran out.
    lost: dict[str, int | bool] = {}
    digest: str = ""


def parse(text: str) -> list[MeasuredStacks]:
    """Return all measurements of a boot. Raises RunError if the output of the plugin is incomplete."""
    try:
        lines = [json.decode(line, type=PluginLine) for line in text.split("\n") if line]
    except MsgspecError as error:
        raise RunError(f"simulator: the output cannot be read: {error}") from error
    error_text = next((line.error for line in lines if line.error is not None), None)
    if error_text is not None:
        raise RunError(f"simulator: {error_text.removeprefix('simulator: ')}")
    if not lines or not lines[-1].end or lines[-1].measurements != len(lines) - 1:
        raise RunError("simulator: the output is incomplete, because the guest was killed; simulate again")
    return [_measurement(line) for line in lines[:-1]]


def _measurement(line: PluginLine) -> MeasuredStacks:
    """Return the measurement in a line of the plugin's output. Raises RunError."""
    for name in COUNTED:
        if name not in line.columns:
            raise RunError(f"simulator: the output has no column {name}; build the simulator again")
    try:
        stacks = tuple(
            CountedStack(
                stack.side,
                tuple(stack.frames),
                dict(zip(line.columns, stack.counts, strict=True)),
                stack.executed,
            )
            for stack in line.stacks
        )
    except ValueError as error:
        raise RunError(f"simulator: the output cannot be read: {error}") from error
    lost = {name: int(count) for name, count in line.lost.items()}
    return MeasuredStacks(stacks, lost, line.digest)
