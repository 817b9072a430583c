"""What is said first of a run: goodput, the verdict, the path of a byte as bars, and how far to trust it.

At most 24 lines of 80 columns on a terminal that was never made larger; a larger one is used. All shares are
of one whole: the CPU time of both sides and of the softirq work beside them, or that of the watched program.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.text import Text

from copyscope import units
from copyscope.escaping import one_line
from copyscope.grouping import grouped
from copyscope.ledger import overhead
from copyscope.record.check import Whole
from copyscope.record.derived import Identity, MachineState, PhaseEffect, Ratio, Watching
from copyscope.record.instruments import Loss
from copyscope.show import account_words, event_columns
from copyscope.show.advice import advice_lines
from copyscope.show.console import has_screen, print_lines
from copyscope.show.evidence import in_order
from copyscope.show.explain import IN_A_LINE
from copyscope.show.layout import Table, heading, wrap
from copyscope.show.ledger_table import (
    Row,
    deciding_symbols,
    every_row,
    kib_factor,
    occurring,
    position,
    too_few,
    why_no_time,
)
from copyscope.show.processors import processor_lines
from copyscope.taxonomy.taxonomy import ACCOUNTS

# What a terminal that says nothing is thought to have.
WIDTH, HEIGHT = 80, 24
# Of the CPU time of a side; below, it is said.
SEEN_LEAST = 0.8
WIDTH_MAX = 160
# From these widths on there are more columns.
WIDE, WIDEST = 100, 160
# In this order columns go where there is no room for all.
LESS_WANTED = ("mostly in", "calls", "bytes", "CPU time", "L1D miss", "L1D sim", "cores")
ROWS_MIN = 4
# On a terminal that was never made taller; others show as many as they have lines for.
ROWS_MAX = 8
BAR_MIN, BAR_MAX = 8, 60
NAME_MAX = 48  # of a command with its arguments
FUNCTIONS_MAX = 34  # columns of the names of functions
REST, ALL, OTHERS = "the rest", "all", "on the time of others"
# Rows that are no part of all.
BESIDE = (ALL, OTHERS)
# KiB that 10 Gb/s deliver in a second, each for so many ns of CPU time; in seconds, which is in CPUs.
CORES_AT_10_GBPS = 10e9 / 8 / 1024 / 1e9
COPIES = {name: words.step for name, words in account_words.WORDS.items()}
WORK = {
    "syscall": "system calls",
    "skb_alloc": "packet buffers",
    "tcp_ip": "TCP/IP",
    "device": "network device",
    "softirq": "softirq",
    "wakeup_sched": "waking, scheduling",
    "lock": "locks",
    "memory": "memory management",
    "irq": "interrupts",
    "user": "program's other work",
    "instruments": "copyscope itself",
    "unattributed": "not explained",
}
WORDS = {**COPIES, **WORK}
MORE = "more: -v (everything), --explain (what each line means), --json FILE (the data)"
MORE_EXPLAINED = "more: -v --explain (all tables, what each line means, the path drawn)"
# Where there is room for them.
WORDS_MEAN = (
    "checks hold: bytes that are counted in two places agree",
    "overhead: goodput lost by watching, and its 95 % interval; -v tells more of each",
    "cores: CPUs that 10 Gb/s would keep busy",
)


@dataclass(frozen=True)
class Step:
    """One row: where CPU time went, and, of a copy, what was counted there. ns None: not known, and why."""

    what: str
    where: str
    ns: float | None
    bytes: int | None = None
    calls: int | None = None
    # Whether the calls are estimated.
    about: bool = False
    functions: str = ""
    why: str = ""
    meaning: str = ""
    # Those of the record that it is made of.
    rows: tuple[Row, ...] = ()


def render(run: Whole, console: Console, *, explain: bool = False) -> None:
    """Print it, or fewer rows, each with what it means.

    The last line is the verdict's: above it a long screen may have scrolled away.
    """
    says_its_size = has_screen(console)
    width = min(console.width, WIDTH_MAX if says_its_size else WIDTH)
    # One line is the prompt's.
    height = (max(console.height, HEIGHT) if says_its_size else HEIGHT) - 1
    title = [*wrap(_title(run), width, indent=2, style="bold"), *processor_lines(run, width)]
    end = [Text(), *wrap(_trust(run, width), width, indent=2)]
    if explain and height >= HEIGHT:
        end += [line for text in WORDS_MEAN for line in wrap(f"  {text}", width, indent=2, style="dim")]
    end += wrap(MORE_EXPLAINED if explain else MORE, width, indent=2, style="dim")
    end += _verdict(run, width)
    room = height - len(title) - len(end)
    if run.derived.advice:
        # What was asked for is the answer: where the time goes is behind -v then.
        between = advice_lines(run, width, room)
    else:
        between = next(
            lines
            for rows in range(ROWS_MAX if height < HEIGHT else height, ROWS_MIN - 1, -1)
            if len(lines := _path(run, width, rows, explain)) <= room or rows == ROWS_MIN
        )
    print_lines([*title, *between, *end], console)


def _verdict(run: Whole, width: int) -> list[Text]:
    verdict = run.derived.verdict
    if verdict.valid:
        return wrap(verdict.sentence, width, indent=2, style="bold")
    more = len(verdict.reasons) - 1
    also = f" (and {more} more: -v)" if more else ""
    lines = wrap(f"INVALID RUN: {verdict.reasons[0]}{also}", width, indent=2, style="bold red")
    if verdict.next:
        lines += wrap(f"next: {verdict.next}", width, indent=2, style="red")
    return lines


def _title(run: Whole) -> str:
    goodput = run.derived.throughput_gbps
    rate = goodput.unprobed if goodput.unprobed is not None else goodput.probed
    speed = "goodput n/a" if rate is None else units.format_gbps(rate)
    speed += " with instruments attached" if rate is not None and goodput.unprobed is None else ""
    measured = units.format_seconds(run.raw.run.measured_s)
    if run.raw.target:
        command = run.raw.target.command
        name = one_line(" ".join(" ".join(command).split()), NAME_MAX) if command else run.raw.target.name
        sent, received = units.format_bytes(run.derived.tx_bytes), units.format_bytes(run.derived.rx_bytes)
        return f"{name}: {speed}, {sent} sent, {received} received in {measured}"
    work = run.raw.asked
    threads = units.counted(work.threads, "thread")
    size = units.format_bytes(work.size_bytes)
    return f"{work.impl}, {size}, {threads}, {run.raw.topology.kind}: {speed}, {measured} measured"


def _path(run: Whole, width: int, rows_max: int, explain: bool) -> list[Text]:
    """Each copy in the order in which a byte meets it, then what else takes most; they add up."""
    copies, work = _copies(run), _work(run)
    total_ns = sum(step.ns or 0.0 for step in (*copies, *work))
    per_kib = kib_factor(run)
    few = too_few(run)
    if few or not total_ns or per_kib is None:
        unseen = why_no_time(run, "no CPU time was seen, or nothing moved")
        why = f"{few} of its CPU time: too few for shares" if few else unseen
        return heading("THE PATH OF A BYTE", "", width) + wrap(f"n/a: {why}", width, indent=2)
    work.sort(key=lambda step: step.ns or 0.0, reverse=True)
    room = max(0 if explain else 1, rows_max - len(copies) - 1)
    if len(work) > room + 1:
        rest = tuple(row for step in work[room:] for row in step.rows)
        work = [*work[:room], Step(REST, "", sum(step.ns or 0.0 for step in work[room:]), rows=rest)]
    every = every_row(run)
    counted = tuple(row for row in every if is_counted(run, row))
    steps = [*copies, *work, Step(ALL, "", total_ns, rows=counted)]
    # Of a watched program, softirq work on packets of its own on the time of others.
    others = tuple(row for row in every if not is_counted(run, row))
    if beside := sum(row.cpu_ns or 0.0 for row in others):
        steps.append(Step(OTHERS, "softirq", beside, rows=others))
    lines = heading("THE PATH OF A BYTE", _per(run, counted), width)
    table = _table(run, steps, total_ns, per_kib, width)
    table.strong = {*range(len(copies)), len(copies) + len(work)}
    rows = table.lines(width)
    lines += rows[:1]
    said = {""}
    for number, row in enumerate(rows[1:]):
        lines.append(row)
        meaning = steps[number].meaning if explain and number < len(steps) else ""
        if meaning not in said:
            lines += wrap(f"  {meaning}", width, indent=2, style="dim")
            said.add(meaning)
    for step in copies:
        if step.why:
            lines += wrap(f"{step.what} {step.why}", width, indent=2, style="dim")
    shown = [column for column, title in event_columns.TITLES.items() if title in table.titles]
    for note in event_columns.notes(run, counted, shown):
        lines += wrap(note, width, indent=2, style="dim")
    return lines


def _per(run: Whole, rows: Sequence[Row]) -> str:
    """What the numbers are of."""
    per = "per KiB sent or received" if run.raw.target else "per KiB delivered"
    if not event_columns.known(rows) and run.raw.modelled is None:
        per = f"its CPU time, {per}" if run.raw.target else f"CPU time {per}"
    return f"{per}; cores: at 10 Gb/s"


def _table(run: Whole, steps: Sequence[Step], total_ns: float, per_kib: float, width: int) -> Table:
    """The columns that there is room for, and bars in what they leave."""
    parts = [step for step in steps if step.what not in BESIDE]
    rest = next((number for number, step in enumerate(parts) if step.what == REST), None)
    modelled = event_columns.simulated(run, [step.rows for step in parts], rest)
    # Of a watched program nothing is modelled, and there is one row more.
    modelled += [{} for _ in steps[len(modelled) :]]
    cells = [
        {**_costs(step, total_ns, per_kib), **_events(run, step, per_kib), **more, **_moved(step, width)}
        for step, more in zip(steps, modelled, strict=True)
    ]
    names = ("what", "where")
    titles = [
        title for title in cells[0] if title not in names and any(row[title] is not None for row in cells)
    ]
    # Where it is too narrow for all, what can be missed most easily goes first.
    for title in (*LESS_WANTED, None):
        table = Table(names, *titles, words=("mostly in",))
        for row in cells:
            table.add(row["what"], row["where"], *(row[title] for title in titles))
        taken = max(len(line.plain) for line in table.lines(WIDTH_MAX * 2))
        if title is None or taken - len(titles) - 1 <= width:
            break
        titles = [one for one in titles if one != title]
    return _with_bars(table, steps, total_ns, min(max(width - taken - 2, BAR_MIN), BAR_MAX))


def _with_bars(table: Table, steps: Sequence[Step], total_ns: float, room: int) -> Table:
    """The same table with a bar for each share, which go where there is no room."""
    made = Table(table.titles[:2], *table.titles[2:], "", words=("mostly in", ""), optional=("",))
    longest = max(step.ns or 0.0 for step in steps if step.what not in BESIDE) / total_ns
    for step, cells in zip(steps, table.rows, strict=True):
        shown = step.ns is not None and step.what not in BESIDE
        made.add(*cells, units.format_bar((step.ns or 0.0) / total_ns, longest, room) if shown else "")
    return made


def _costs(step: Step, total_ns: float, per_kib: float) -> dict[str, str | None]:
    """The cells of one row by title: what it is, and its CPU time."""
    price = None if step.ns is None else step.ns * per_kib
    # What is beside the whole has no share of it.
    share = None if step.ns is None else step.ns / total_ns
    return {
        "what": step.what,
        "where": step.where,
        "ns/KiB": units.format_tenths(price),
        "share": "" if step.what == OTHERS else units.format_percent(share),
        "cores": units.format_hundredths(None if price is None else price * CORES_AT_10_GBPS),
    }


def _events(run: Whole, step: Step, per_kib: float) -> dict[str, str | None]:
    """Its hardware events."""
    return {
        title: event_columns.whole(run, step.rows, column, per_kib)
        if step.what == ALL
        else event_columns.cell(step.rows, column, per_kib)
        for column, title in event_columns.TITLES.items()
    }


def _moved(step: Step, width: int) -> dict[str, str | None]:
    """What else there may be room for at such a width."""
    about = "~" if step.about else ""
    cells: dict[str, str | None] = {
        "CPU time": units.format_ns(step.ns),
        "bytes": "" if step.bytes is None else units.format_bytes(step.bytes),
        "calls": "" if step.calls is None else about + units.format_count(step.calls),
        "mostly in": step.functions,
    }
    return cells if width >= WIDEST else dict(list(cells.items())[: 2 * (width >= WIDE)])


def _copies(run: Whole) -> list[Step]:
    """Each account and side; one that took no time is no row, one of which that is not known is."""
    counted = (row for row in occurring(run.derived.ledger) if is_counted(run, row))
    rows = grouped(counted, lambda row: (row.account, row.side))
    steps = []
    for account, side in sorted(rows, key=lambda key: position(ACCOUNTS, key[0])):
        some = rows[account, side]
        ns = sum(row.cpu_ns or 0.0 for row in some)
        known = any(row.cpu_ns is not None for row in some)
        # Of what is not known the bounds may be.
        opening = "n/a: " if some[0].ci is None else ""
        why = "" if known else opening + some[0].reasons.get("cpu_ns", "no reason recorded")
        if ns or not known:
            steps.append(
                Step(
                    called(account, watched=bool(run.raw.target)),
                    where(run, side, {row.context for row in some}),
                    ns if known else None,
                    next((row.bytes for row in some if row.bytes is not None), None),
                    next((row.calls for row in some if row.calls is not None), None),
                    any(row.calls_method == "scaled" for row in some),
                    _functions(run, account, side),
                    why,
                    IN_A_LINE[account],
                    tuple(some),
                )
            )
    return steps


def is_counted(run: Whole, row: Row) -> bool:
    """Of a watched program its own CPU time is the whole: what is done on the time of others is beside it."""
    return not run.raw.target or row.side == "target"


def _functions(run: Whole, category: str, side: str | None = None) -> str:
    """Where most of its samples were, as far as there is room."""
    names = [name for name, _ in deciding_symbols(run, category, side).most_common(2)]
    return one_line(", ".join(names), FUNCTIONS_MAX)


def called(name: str, *, watched: bool) -> str:
    """What people are told of an account or a stage; of other things their own name."""
    return "copy to the program" if name == "copy_out" and watched else WORDS.get(name, name)


def where(run: Whole, side: str, contexts: set[str]) -> str:
    whose = "" if run.raw.target else side
    return f"{whose}, softirq".removeprefix(", ") if contexts == {"softirq"} else whose


def _work(run: Whole) -> list[Step]:
    """The same of all other work, both sides in one."""
    counted = (row for row in run.derived.stages if is_counted(run, row))
    return [
        Step(
            WORK[stage],
            "",
            ns,
            functions=_functions(run, stage),
            meaning=IN_A_LINE[stage],
            rows=tuple(rows),
        )
        for stage, rows in grouped(counted, lambda row: str(row.stage)).items()
        if (ns := sum(row.cpu_ns or 0.0 for row in rows))
    ]


def _trust(run: Whole, width: int) -> str:
    """Whether it counts, what measuring cost, how quiet the machine was, what was lost: all in one line."""
    valid = run.derived.verdict.valid
    checks = [one.holds for one in run.derived.identities if one.holds is not None]
    said = "valid" if valid else "INVALID"
    in_full = f"{said}, {sum(checks)} of {len(checks)} checks hold"
    in_short = f"{said}, {len(checks)} checks hold" if valid else in_full
    state, end = run.derived.machine_state, _losses(run)
    section = run.derived.overhead
    watching = section.watching
    whole = [in_full, _overheads(section.phases) if watching is None else watching_text(watching)]
    whole += [state.sentence or "machine quiet", end] if state else [end]
    unseen = _unseen(run)
    whole += unseen
    if len(line := "; ".join(whole)) <= width:
        return line
    # What a line of 80 columns can hold.
    cost = _in_short("overhead", section) if watching is None else _in_short("watching cost", watching)
    return "; ".join([in_short, cost, *([quiet(state)] if state else []), end, *unseen])


def _unseen(run: Whole) -> list[str]:
    """Sides of which samples are missing: late timers of virtual machines miss what ran until then."""
    times = [row for row in run.derived.identities if row.name.endswith("_time")]
    parts = {row.name.removesuffix("_time"): _part_seen(row) for row in times}
    few = {side: part for side, part in parts.items() if part < SEEN_LEAST}
    return [f"the sampler saw {100 * part:.0f} % of the {side}" for side, part in few.items()]


def _part_seen(row: Identity) -> float:
    """Samples x period, of the clock's time; 1 where one is not known."""
    return row.left / row.right if row.left and row.right else 1.0


def _overheads(phases: Mapping[str, PhaseEffect]) -> str:
    texts = [f"{name} {'n/a' if one.ratio is None else _lost(one, 1)}" for name, one in in_order(phases)]
    return f"overhead, goodput lost: {', '.join(texts)}"


def watching_text(watching: Watching) -> str:
    """What watching cost a program, as one number."""
    if watching.ratio is None:
        return "what watching cost: n/a"
    lost, _, interval = _lost(watching, 1).partition(" (")
    if _is_unclear(watching):
        return f"what watching cost is unclear: {lost} of goodput ({interval}: watch longer"
    return f"watching cost {lost} of goodput ({interval}"


def _in_short(name: str, cost: Ratio) -> str:
    """In whole percent; nothing where no effect and a large one are as likely."""
    if cost.ratio is None:
        return f"{name} n/a"
    return f"{name} {'unclear' if _is_unclear(cost) else _lost(cost, 0)}"


def _is_unclear(cost: Ratio) -> bool:
    if cost.low is None or cost.high is None:
        return False
    return overhead.found(cost.low, cost.high) == overhead.NOISY


def _lost(cost: Ratio, decimals: int) -> str:
    """The loss of goodput in percent, and its interval where there is one."""
    low, ratio, high = (
        # A loss of -0.0 is none.
        None
        if getattr(cost, key) is None
        else f"{round((1 - getattr(cost, key)) * 100, decimals) + 0.0:.{decimals}f}"
        for key in ("high", "ratio", "low")
    )
    return f"{ratio} %" if low is None else f"{ratio} % ({low} to {high})"


def quiet(state: MachineState) -> str:
    if state.sentence is None:
        return "machine quiet"
    taken = sum(share or 0.0 for share in (state.others_share, state.steal_share))
    if state.sentence.startswith("unsteady"):
        return f"goodput varied {(state.spread_share or 0.0) * 100:.0f} %"
    return f"busy: others took {taken * 100:.0f} %"


def _losses(run: Whole) -> str:
    counts = run.derived.loss
    lost = [_lost_at(name, one) for name, one in counts.items() if one.count]
    unknown = sum(one.count is None for one in counts.values())
    said = f"lost: {', '.join(lost)}" if lost else "nothing lost" if counts else "losses not known"
    return f"{said} ({unknown} counters n/a)" if unknown else said


def _lost_at(name: str, one: Loss) -> str:
    whole = f" of {one.of:,}" if one.of else ""
    return f"{one.count:,}{whole} {name.removeprefix('recursion_')}"
