# SPDX-License-Identifier: GPL-2.0-only
"""Tables for a simulated machine: cache lines and cache misses of each copy and of all other work."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from rich.text import Text

from copyscope.base import spelling
from copyscope.base.spelling import visible
from copyscope.base.stats import grouped
from copyscope.record.simulated import Measurement, Model, SideSum, Simulated, SimulatedRow
from copyscope.show.explain import entry
from copyscope.show.layout import TextTable, heading, labelled, wrap
from copyscope.taxonomy.accounts import ACCOUNTS, STAGES

# Minimum of cache lines per KiB for an account to be shown: with fewer, all its numbers would round to 0.
LINES_PER_KIB_MIN = 0.05
# Stages with less than this share of both instructions and cache lines of a side are added up in one row.
SMALL_SHARE = 0.02
# Minimum of L1D misses per KiB for an account in the spread: small counts vary by large percentages.
SPREAD_MISSES_MIN = 4.0


@dataclass(frozen=True)
class CacheLevel:
    """A cache level of the simulated machine.

    title: name of the level on the screen
    size_bytes, ways: functions that return a model's size and associativity; size 0: no such level
    load_misses, store_misses: functions that return the misses per KiB of a row
    """

    title: str
    size_bytes: Callable[[Model], int]
    ways: Callable[[Model], int]
    load_misses: Callable[[SideSum], float]
    store_misses: Callable[[SideSum], float]

    def misses(self, rows: Iterable[SideSum]) -> float:
        """Return the sum of load and store misses per KiB over some rows."""
        return sum((self.load_misses(row) + self.store_misses(row) for row in rows), 0.0)


L1D = CacheLevel(
    "L1D",
    lambda model: model.l1d_bytes,
    lambda model: model.l1d_ways,
    lambda row: float(row.l1d_load_misses_per_kib),
    lambda row: float(row.l1d_store_misses_per_kib),
)
L2 = CacheLevel(
    "L2",
    lambda model: model.l2_bytes,
    lambda model: model.l2_ways,
    lambda row: float(row.l2_load_misses_per_kib),
    lambda row: float(row.l2_store_misses_per_kib),
)
LLC = CacheLevel(
    "LLC",
    lambda model: model.llc_bytes,
    lambda model: model.llc_ways,
    lambda row: float(row.llc_load_misses_per_kib),
    lambda row: float(row.llc_store_misses_per_kib),
)
LEVELS = (L1D, L2, LLC)
MISSES = tuple(f"{level.title} misses" for level in LEVELS)


def simulated_lines(section: Simulated, width: int, *, explain: bool = False) -> list[Text]:
    """Return the tables of all measurements, a description of the model, and the conclusion.

    explain: also return all other work, the meaning of the columns, and the limits of a model
    """
    lines: list[Text] = []
    for measurement in section.measurements:
        lines += [Text()] if lines else []
        lines += _measurement_lines(measurement, section, width, explain=explain)
    if len(section.measurements) > 1:
        lines += _side_by_side(section.measurements, width)
    lines += [Text(), *_about_lines(section, width)]
    lines += _explanations(section, width) if explain else []
    return [*lines, *wrap(conclusion(section), width, indent=2, style="bold")]


def conclusion(section: Simulated) -> str:
    """Return a sentence that compares the cache misses of all measurements.

    For a single measurement, the sentence gives its misses, and the share of them in copies.

    A warning about failed checks comes first.
    """
    broken = sum(not check.holds for measurement in section.measurements for check in measurement.checks)
    warning = f"{broken} checks DO NOT HOLD; " if broken > 1 else "1 check DOES NOT HOLD; " if broken else ""
    if len(section.measurements) == 1:
        (measurement,) = section.measurements
        misses = L1D.misses(measurement.sides)
        copies = L1D.misses(_copies(measurement))
        share = f", {copies / misses * 100:.0f} % of them in its copies" if misses else ""
        return f"{warning}{_name(measurement)}: {misses:,.1f} L1D misses per KiB{share}"
    by_size = grouped(section.measurements, lambda measurement: measurement.size_bytes or 0)
    texts = [_comparison_text(measurements) for measurements in by_size.values()]
    if len(by_size) > 1:
        sizes = map(spelling.format_bytes, by_size)
        texts = [f"{size}: {text}" for size, text in zip(sizes, texts, strict=True)]
    return f"{warning}L1D misses per KiB (in copies): {'; '.join(texts)}"


def _comparison_text(measurements: Sequence[Measurement]) -> str:
    """Format the L1D misses of each measurement at one message size, the fewest first.

    The L1D misses of copies follow in parentheses.
    """
    # If rounded totals are equal, the misses of the copies decide the order.
    ranked = sorted(
        measurements,
        key=lambda measurement: (
            round(L1D.misses(measurement.sides), 1),
            L1D.misses(_copies(measurement)),
        ),
    )
    return ", ".join(
        f"{_name(measurement)} {L1D.misses(measurement.sides):,.1f} ({L1D.misses(_copies(measurement)):,.1f})"
        for measurement in ranked
    )


def _name(measurement: Measurement) -> str:
    """Return a measurement's name: the strategy, or the command of the user's program."""
    command = measurement.command
    return visible(" ".join(command)) if command else str(measurement.impl)


def _copies(measurement: Measurement) -> list[SimulatedRow]:
    return [row for row in measurement.rows if _is_copy(row)]


def _measurement_lines(
    measurement: Measurement, section: Simulated, width: int, *, explain: bool
) -> list[Text]:
    """Return the title, the failed checks and the tables of one measurement. `explain`: also other work."""
    path, size_bytes = section.path, measurement.size_bytes
    parts = [path.kind + ("" if path.mtu_bytes is None else f" (MTU {path.mtu_bytes})")]
    if measurement.command:
        parts.append(f"{spelling.format_bytes(measurement.delivered_bytes)} copied out of sockets")
    else:
        parts = [f"{spelling.format_bytes(size_bytes)} in {measurement.fields} fields", *parts]
        parts.append(f"{measurement.messages:,} messages counted")
    parts.append(f"Linux {section.kernel.release}")
    title = f"{_name(measurement)}, SIMULATED: {', '.join(parts)}"
    lines = wrap(title, width, indent=2, style="bold")
    for check in measurement.checks:
        if not check.holds:
            values = f"{_number(check.left)}, expected {_number(check.right)}"
            lines += wrap(f"DOES NOT HOLD: {check.name}: {values}", width, indent=2, style="bold red")
    lines += heading(
        "LINES OF EACH COPY",
        "modelled; per KiB delivered; read + written; a copy of 1 KiB must read 16 lines and write 16",
        width,
    )
    rows = [row for row in measurement.rows if row.kind == "account" and _lines([row]) >= LINES_PER_KIB_MIN]
    lines += _account_table(rows).lines(width) if rows else wrap("no copy was made", width)
    if explain:
        lines += heading("ALL WORK", "modelled; per KiB delivered; reads and writes together", width)
        lines += _stage_table(measurement).lines(width)
    return lines


def _side_by_side(measurements: Sequence[Measurement], width: int) -> list[Text]:
    """Return a table with a row for each measurement: misses in all work, in copies, and in the sender."""
    lines = heading("SIDE BY SIDE", "modelled; misses per KiB delivered, reads and writes together", width)
    titles = [title for group in ("all", "copies", "sender") for title in (f"{group}: L1D", "L2", "LLC")]
    table = TextTable(("strategy", "size"), "instr", *titles, numbers=("size",))
    for measurement in measurements:
        sides = {row.side: row for row in measurement.sides}
        table.add(
            measurement.impl,
            spelling.format_bytes(measurement.size_bytes),
            f"{_instructions(measurement.sides):,.0f}",
            *_miss_cells(measurement.sides),
            *_miss_cells(_copies(measurement)),
            *_miss_cells([sides["sender"]] if "sender" in sides else []),
        )
    return lines + table.lines(width)


def _miss_cells(rows: Sequence[SideSum]) -> list[str | None]:
    return [spelling.format_tenths(level.misses(rows)) for level in LEVELS]


def _account_table(rows: Iterable[SimulatedRow]) -> TextTable:
    """Return a table of copies: instructions, bytes, cache lines and misses per KiB (read + written)."""
    titles = ("instr", "bytes", "lines", *MISSES, "remote", "dTLB")
    table = TextTable(("copy", "side", "where"), *titles, optional=("dTLB",))
    for row in rows:
        table.add(
            *(ACCOUNTS[row.category].title, row.side, row.context),
            f"{row.instructions_per_kib:,.0f}",
            f"{row.read_bytes_per_kib:,.0f}+{row.written_bytes_per_kib:,.0f}",
            f"{row.read_lines_per_kib:,.1f}+{row.written_lines_per_kib:,.1f}",
            *(f"{level.load_misses(row):,.1f}+{level.store_misses(row):,.1f}" for level in LEVELS),
            f"{row.remote_lines_per_kib:.1f}",
            f"{row.tlb_l1_misses_per_kib:.1f}",
        )
    return table


def _stage_table(measurement: Measurement) -> TextTable:
    """Return a table with a row per side and stage. Small stages and other tasks share a row."""
    table = TextTable(("stage", "side"), "instr", "lines", *MISSES, "remote", "dTLB", optional=("dTLB",))
    for total in measurement.sides:
        side, small = total.side, list[SimulatedRow]()
        rows_of_side = [row for row in measurement.rows if row.side == side]
        for name in ("copies", *STAGES):
            rows = [row for row in rows_of_side if name == ("copies" if _is_copy(row) else row.category)]
            if side == "other" or _is_small(rows, total):
                small += rows
            else:
                table.add(STAGES.get(name, name), side, *_stage_cells(rows))
        if small and side != "other":
            table.add("smaller stages", side, *_stage_cells(small))
        table.add("sum", side, *_stage_cells([total]), strong=True)
    return table


def _is_copy(row: SimulatedRow) -> bool:
    return row.category in ACCOUNTS


def _is_small(rows: Sequence[SimulatedRow], total: SideSum) -> bool:
    """Return True if rows have a small share of a side's instructions and also of its cache lines.

    total: sum over all rows of the side
    """
    return _instructions(rows) <= SMALL_SHARE * _instructions([total]) and (
        _lines(rows) <= SMALL_SHARE * _lines([total])
    )


def _stage_cells(rows: Sequence[SideSum]) -> list[str | None]:
    """Return the cells of a stage per KiB: instructions, cache lines, misses, remote lines, TLB misses."""
    return [
        f"{_instructions(rows):,.0f}",
        spelling.format_tenths(_lines(rows)),
        *_miss_cells(rows),
        spelling.format_tenths(float(sum(row.remote_lines_per_kib for row in rows))),
        spelling.format_tenths(float(sum(row.tlb_l1_misses_per_kib for row in rows))),
    ]


def _instructions(rows: Iterable[SideSum]) -> float:
    return float(sum(row.instructions_per_kib for row in rows))


def _lines(rows: Iterable[SideSum]) -> float:
    """Return the sum of the cache lines that were read and written per KiB."""
    return float(sum(row.read_lines_per_kib + row.written_lines_per_kib for row in rows))


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _about_lines(section: Simulated, width: int) -> list[Text]:
    """Return the modelled caches, the spread between boots, and the limits of a model."""
    model = section.model
    levels = [
        f"{level.title} {spelling.format_bytes(size)} in {level.ways(model)} ways"
        for level in LEVELS
        if (size := level.size_bytes(model))
    ]
    parts = [
        *levels,
        f"LLC {model.inclusion}",
        f"lines of {model.line_bytes} B",
        f"prefetcher {model.prefetch}",
        *([f"DDIO {model.ddio}"] if model.ddio != "unseen" else []),
        f"{model.vcpus} CPUs",
    ]
    lines = labelled("model", f"{model.name}: {', '.join(parts)}; {model.source}", width)
    lines += labelled("spread", _spread(section), width)
    limits = "a model, no measurement: without time, cycles or overlap of misses (more: --explain)"
    return lines + labelled("it is", limits, width)


# Column of the tables -> its meaning.
MEANING = {
    "instr": "Instructions of the kernel and of the program, in user mode and in softirqs.",
    "lines": "Cache lines that were read and written: a line that is touched twice is counted twice.",
    "misses": "Loads and stores of lines that this level did not have: a miss in L1D goes to L2, a miss in "
    "L2 to the LLC, a miss in the LLC to memory.",
    "remote": "Lines last written by the other CPU.",
    "dTLB": "Addresses that the first level of the TLB did not have.",
}


def _explanations(section: Simulated, width: int) -> list[Text]:
    """Return the meaning of the copies and columns, a description of the guest, and a model's limits."""
    names = dict.fromkeys(
        row.category for measurement in section.measurements for row in _copies(measurement)
    )
    lines = heading("WHAT IT MEANS", "", width)
    accounts = (ACCOUNTS[name] for name in names)
    for name, text in (*((account.title, account.meaning) for account in accounts), *MEANING.items()):
        lines += entry(name, text, width)
    cpu, seeds = section.cpu, section.seeds
    guest = [
        f"QEMU {section.qemu.version} -cpu {cpu.model}",
        f"fast strings: {', '.join(cpu.flags) or 'none'}",
        f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}",
        "the same seeds give identical results"
        if section.exact
        else "--fast: results differ from run to run",
        f"{section.wall_s:.0f} s",
    ]
    lines += labelled("guest", ", ".join(guest), width)
    lines += labelled(
        "what it is",
        "every instruction of the guest's kernel and programs, and every cache line that they read or write,"
        " counted in QEMU with a model of the caches: how many lines each copy moves, and from which level",
        width,
    )
    return lines + labelled(
        "it is not",
        "a measurement of this or another machine. The model has no time, no cycles, no overlap of misses,"
        " no instruction cache, no prefetcher unless requested, and does not see devices read memory. Its"
        " CPUs take turns, so that more data waits in sockets than on real ones. With other caches the"
        " strategies may rank differently",
        width,
    )


def _spread(section: Simulated) -> str:
    """Format the largest difference in an account's L1D misses between boots with different seeds."""
    if len(section.seeds) < 2:
        return "unknown from one seed: --seeds 3 shows how much another boot differs"
    rows = [row for measurement in section.measurements for row in measurement.accounts]
    means_and_halves = [
        *((L1D.load_misses(row), row.l1d_load_misses_per_kib_half_width) for row in rows),
        *((L1D.store_misses(row), row.l1d_store_misses_per_kib_half_width) for row in rows),
    ]
    spreads = ((half or 0.0) / mean for mean, half in means_and_halves if mean >= SPREAD_MISSES_MIN)
    widest = max(spreads, default=0.0)
    return (
        f"means of {len(section.seeds)} boots; 95 % interval of each account's L1D misses: at most"
        f" ± {spelling.format_percent(widest)}"
    )
