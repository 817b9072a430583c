"""The tables of a simulated machine: what each copy moves, and where the rest of the lines go."""

from collections.abc import Iterable, Sequence

from rich.text import Text

from copyscope import units
from copyscope.escaping import visible
from copyscope.grouping import grouped
from copyscope.record.simulated import Measurement, Row, Simulated
from copyscope.show.account_words import COPIES, WORDS, WORK
from copyscope.show.explain import entry
from copyscope.show.layout import Table, heading, labelled, wrap
from copyscope.taxonomy.taxonomy import ACCOUNTS, STAGES

LEVELS = (("L1D", "l1d"), ("L2", "l2"), ("LLC", "llc"))
MISSES = tuple(f"{title} misses" for title, _ in LEVELS)
# An account below it, for each KiB, is shown as zeros only.
LEAST_PER_KIB = 0.05
# A stage below this share of its side's instructions and of its lines goes into one row with others.
SMALL_SHARE = 0.02


def simulated_lines(section: Simulated, width: int, *, explain: bool = False) -> list[Text]:
    """What each copy moves and misses, and at last what follows from it.

    `explain`: also all other work, what the columns are, and what a model cannot say.
    """
    lines: list[Text] = []
    for one in section.measurements:
        lines += [*([Text()] if lines else []), *_measurement_lines(one, section, width, explain=explain)]
    if len(section.measurements) > 1:
        lines += _side_by_side(section.measurements, width)
    lines += [Text(), *_about_lines(section, width)]
    lines += _explained(section, width) if explain else []
    return [*lines, *wrap(conclusion(section), width, indent=2, style="bold")]


def conclusion(section: Simulated) -> str:
    """Who misses least, or of one what its copies have of all misses; what is broken comes before that."""
    broken = sum(not check.holds for one in section.measurements for check in one.checks)
    opening = f"{units.counted(broken, 'check')} DOES NOT HOLD; " if broken == 1 else ""
    opening = f"{broken} checks DO NOT HOLD; " if broken > 1 else opening
    if len(section.measurements) == 1:
        (one,) = section.measurements
        missed = _missed(one.sides)
        part = f", {_missed(_copies(one)) / missed * 100:.0f} % of them in its copies" if missed else ""
        return f"{opening}{_named(one)}: {missed:,.1f} L1D misses per KiB{part}"
    sizes = grouped(section.measurements, lambda one: one.size_bytes or 0)
    ranked = []
    for size_bytes, some in sizes.items():
        # Those that are printed alike are told apart by their copies.
        some.sort(key=lambda one: (round(_missed(one.sides), 1), _missed(_copies(one))))
        named = ", ".join(
            f"{_named(one)} {_missed(one.sides):,.1f} ({_missed(_copies(one)):,.1f} in copies)"
            for one in some
        )
        ranked.append(f"{units.format_bytes(size_bytes)}: {named}")
    return f"{opening}L1D misses per KiB, the fewest first: {'; '.join(ranked)}"


def _named(one: Measurement) -> str:
    return str(visible(" ".join(one.command))) if one.command else str(one.impl)


def _missed(rows: Iterable[Row]) -> float:
    return _total(rows, "l1d_load_misses", "l1d_store_misses")


def _copies(one: Measurement) -> list[Row]:
    return [row for row in one.rows if _is_copy(row)]


def _measurement_lines(one: Measurement, section: Simulated, width: int, *, explain: bool) -> list[Text]:
    path, command = section.path, one.command
    parts = [path.kind + ("" if path.mtu_bytes is None else f" (MTU {path.mtu_bytes})")]
    if command:
        parts.append(f"{units.format_bytes(one.delivered_bytes)} copied out of sockets")
    else:
        parts = [f"{units.format_bytes(one.size_bytes)} in {one.fields} fields", *parts]
        parts.append(f"{one.messages:,} messages counted")
    parts.append(f"Linux {section.kernel.release}")
    name = visible(" ".join(command)) if command else one.impl
    lines = wrap(f"{name}, SIMULATED: {', '.join(parts)}", width, indent=2, style="bold")
    for check in one.checks:
        if not check.holds:
            values = f"{_number(check.left)}, expected {_number(check.right)}"
            lines += wrap(f"DOES NOT HOLD: {check.name}: {values}", width, indent=2, style="bold red")
    lines += heading(
        "LINES OF EACH COPY",
        "modelled; per KiB delivered; read + written; a copy of 1 KiB must read 16 lines and write 16",
        width,
    )
    accounts = [row for row in one.rows if row.kind == "account"]
    accounts = [row for row in accounts if _total([row], "read_lines", "written_lines") >= LEAST_PER_KIB]
    lines += _account_table(accounts).lines(width) if accounts else wrap("no copy was seen", width)
    if explain:
        lines += heading("ALL WORK", "modelled; per KiB delivered; reads and writes together", width)
        lines += _stage_table(one).lines(width)
    return lines


def _side_by_side(measurements: Sequence[Measurement], width: int) -> list[Text]:
    """Each measurement in one row: what all together missed, what the copies did, and what the sender did."""
    lines = heading("SIDE BY SIDE", "modelled; misses per KiB delivered, reads and writes together", width)
    misses = [title for whom in ("all", "copies", "sender") for title in (f"{whom}: L1D", "L2", "LLC")]
    table = Table(("strategy", "size"), "instr", *misses, numbers=("size",))
    for one in measurements:
        sides = {row.side: row for row in one.sides}
        table.add(
            one.impl,
            units.format_bytes(one.size_bytes),
            f"{_total(one.sides, 'instructions'):,.0f}",
            *_misses(one.sides),
            *_misses(_copies(one)),
            *_misses([sides["sender"]] if "sender" in sides else []),
        )
    return lines + table.lines(width)


def _misses(rows: Sequence[Row]) -> list[str | None]:
    return [
        units.format_tenths(_total(rows, f"{key}_load_misses", f"{key}_store_misses")) for _, key in LEVELS
    ]


def _account_table(rows: Iterable[Row]) -> Table:
    titles = ("instr", "bytes", "lines", *MISSES, "remote", "dTLB")
    table = Table(("copy", "side", "where"), *titles, optional=("dTLB",))
    for row in rows:
        table.add(
            *(COPIES[row.category], row.side, row.context),
            f"{row.instructions_per_kib:,.0f}",
            _pair(row, "read_bytes", "written_bytes", digits=0),
            _pair(row, "read_lines", "written_lines"),
            *(_pair(row, f"{key}_load_misses", f"{key}_store_misses") for _, key in LEVELS),
            f"{row.remote_lines_per_kib:.1f}",
            f"{row.tlb_l1_misses_per_kib:.1f}",
        )
    return table


def _stage_table(one: Measurement) -> Table:
    table = Table(("stage", "side"), "instr", "lines", *MISSES, "remote", "dTLB", optional=("dTLB",))
    for whole in one.sides:
        side, small = whole.side, list[Row]()
        mine = [row for row in one.rows if row.side == side]
        for name in ("copies", *STAGES):
            found = [row for row in mine if name == ("copies" if _is_copy(row) else row.category)]
            if side == "other" or _is_small(found, whole):
                small += found
            else:
                table.add(WORK.get(name, name), side, *_cells(found))
        if small and side != "other":
            table.add("smaller ones", side, *_cells(small))
        table.add("sum", side, *_cells([whole]), strong=True)
    return table


def _is_copy(row: Row) -> bool:
    return row.category in ACCOUNTS


def _is_small(rows: Sequence[Row], whole: Row) -> bool:
    return all(
        _total(rows, *names) <= SMALL_SHARE * _total([whole], *names)
        for names in (("instructions",), ("read_lines", "written_lines"))
    )


def _cells(rows: Sequence[Row]) -> list[str | None]:
    return [
        f"{_total(rows, 'instructions'):,.0f}",
        units.format_tenths(_total(rows, "read_lines", "written_lines")),
        *_misses(rows),
        units.format_tenths(_total(rows, "remote_lines")),
        units.format_tenths(_total(rows, "tlb_l1_misses")),
    ]


def _total(rows: Iterable[Row], *names: str) -> float:
    return float(sum(getattr(row, f"{name}_per_kib") for row in rows for name in names))


def _pair(row: Row, loads: str, stores: str, digits: int = 1) -> str:
    return f"{getattr(row, f'{loads}_per_kib'):,.{digits}f}+{getattr(row, f'{stores}_per_kib'):,.{digits}f}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.2f}"


def _about_lines(section: Simulated, width: int) -> list[Text]:
    """What the numbers are of, and what they are not."""
    model = section.model
    levels = [
        f"{title} {units.format_bytes(size)} in {getattr(model, f'{key}_ways')} ways"
        for title, key in LEVELS
        if (size := getattr(model, f"{key}_bytes"))
    ]
    modelled = [
        *levels,
        f"LLC {model.inclusion}",
        f"lines of {model.line_bytes} B",
        f"prefetcher {model.prefetch}",
        *([f"DDIO {ddio}"] if (ddio := model.ddio) != "unseen" else []),
        f"{model.vcpus} CPUs",
    ]
    lines = labelled("model", f"{model.name}: {', '.join(modelled)}; {model.source}", width)
    lines += labelled("spread", _spread(section), width)
    said = "a model, no measurement: it has no time, no cycles, no overlap of misses (--explain says more)"
    return lines + labelled("it is", said, width)


# What is in a table, where it is not a word of the field.
MEANING = {
    "instr": "Instructions, of the kernel and of the program, in user mode and in softirqs.",
    "lines": "Cache lines that were read and written: a line that is touched twice is counted twice.",
    "misses": "Lines that this level did not have, of loads and stores: L1D asks L2, L2 LLC, LLC memory.",
    "remote": "Lines that the other CPU had written to last.",
    "dTLB": "Addresses that the first level of the TLB did not have.",
}


def _explained(section: Simulated, width: int) -> list[Text]:
    """The copies of this simulation, the columns, the guest, and what a model cannot say."""
    shown = dict.fromkeys(row.category for one in section.measurements for row in _copies(one))
    lines = heading("WHAT IT MEANS", "", width)
    for name, text in (*((COPIES[account], WORDS[account].meaning) for account in shown), *MEANING.items()):
        lines += entry(name, text, width)
    cpu, seeds = section.cpu, section.seeds
    guest = [
        f"QEMU {section.qemu.version} -cpu {cpu.model}",
        f"fast strings: {', '.join(cpu.flags) or 'none'}",
        f"seed{'s' if len(seeds) > 1 else ''} {', '.join(map(str, seeds))}",
        "the same seeds give the same bits" if section.exact else "--fast: no two runs are alike",
        f"{section.wall_s:.0f} s",
    ]
    lines += labelled("guest", ", ".join(guest), width)
    lines += labelled(
        "what it is",
        "every instruction of the guest's kernel and programs, and every line that they read or write,"
        " counted in QEMU by a model of the caches: how many lines each copy moves, and from which level",
        width,
    )
    return lines + labelled(
        "it is not",
        "a measurement of this or another machine. The model has no time, no cycles, no overlap of misses,"
        " no instruction cache, no prefetcher unless asked for, and does not see devices read memory. Its"
        " CPUs take turns, so that more data waits in sockets than on real ones. With other caches the order"
        " of the strategies may be another",
        width,
    )


def _spread(section: Simulated) -> str:
    """How much the seeds differ in what the copies miss; one seed cannot tell."""
    if len(section.seeds) < 2:
        return "unknown from one seed: --seeds 3 says how much another boot differs"
    widest = 0.0
    for one in section.measurements:
        for row in one.accounts:
            for name in ("l1d_load_misses", "l1d_store_misses"):
                mean, half = getattr(row, f"{name}_per_kib"), getattr(row, f"{name}_per_kib_half_width")
                # Of few misses a large share is still few.
                if mean >= 4:
                    widest = max(widest, half / mean)
    return (
        f"means of {len(section.seeds)} boots; 95 % interval of each account's L1D misses: at most"
        f" ± {units.format_percent(widest)}"
    )
