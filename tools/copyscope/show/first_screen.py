# SPDX-License-Identifier: GPL-2.0-only
"""First screen of a run: goodput, a byte's path as bars, reliability of the numbers, and verdict.

The screen has at most 24 lines of 80 columns, unless the terminal is larger.
"""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median
from typing import NamedTuple

from rich.console import Console
from rich.text import Text

from copyscope.base import spelling
from copyscope.base.spelling import one_line
from copyscope.ledger import machine_state
from copyscope.ledger.hook_cost import hook_text
from copyscope.ledger.machine_state import OPENINGS, disturbance_kind
from copyscope.ledger.noise import beside_goodput, load_text
from copyscope.ledger.own_functions import own_functions
from copyscope.ledger.share import percent
from copyscope.ledger.waiting import MENTIONED_MIN, waiting, why_unknown
from copyscope.record.derived import Identity, PhaseEffect, Ratio, Watching
from copyscope.record.instruments import Loss
from copyscope.record.portrait import Direction
from copyscope.record.run import Run
from copyscope.show.cpu_tables import processor_lines, thread_lines
from copyscope.show.evidence import in_order
from copyscope.show.findings import advice_lines, why_lines
from copyscope.show.layout import TextTable, has_screen, heading, labelled, print_lines, report_width, wrap
from copyscope.show.ledger_rows import flow_order, occurring, received_text
from copyscope.show.path_table import SMALL_SHARE, path_lines

# Assumed size of a terminal that does not report one.
WIDTH, HEIGHT = 80, 24
WIDTH_MAX = 160
# The screen names a side (sender or receiver) if samples cover less than this part of its CPU time.
SAMPLED_SHARE_MIN = 0.8
# Rows of the table "path of a byte": minimum, and maximum in a terminal of 24 lines.
ROWS_MIN, ROWS_MAX = 4, 8
# Maximum length of a watched command with its arguments on the screen, in characters.
NAME_MAX = 48
MORE = "more: -v (all), --explain, --json FILE"
MORE_EXPLAINED = "more: -v --explain (all tables, what each line means, the path drawn)"
# The reason for an invalid run can begin with the name of a consistency check, which only -v shows.
CHECK_NAME = re.compile(r"^identity \w+: ")
PID = re.compile(r"\[(\d+)\](?=, |$)")
# Strategy of the run -> strategy that the screen suggests to compare it with. Default: DEFAULT_RIVAL.
DEFAULT_RIVAL = "one_copy"
RIVALS = {DEFAULT_RIVAL: "zero_copy", "relay_copy": "relay_splice", "relay_splice": "relay_copy"}
# Default of `copyscope compare --size`.
DEFAULT_SIZE_BYTES = 1 << 16
# Explanations of words on the first screen, for --explain in a terminal that is tall enough.
WORD_MEANINGS = (
    "valid: bytes that are counted in two places agree, and nothing failed",
    "±: half of the 95 % interval, of `all` over segments; share: of all CPU time",
    "overhead: goodput lost by measuring, and its 95 % interval; -v shows more",
    "cores: CPUs kept busy at 10 Gb/s",
)


def render(run: Run, console: Console, *, explain: bool = False, by_thread: bool = False) -> None:
    """Print the first screen of a run. The verdict comes last, because a long screen may scroll away.

    explain: print fewer rows, each with its meaning
    by_thread: print CPU time by thread name instead of the path of a byte
    """
    has_size = has_screen(console)
    width = min(console.width, WIDTH_MAX if has_size else WIDTH)
    # The last line of the terminal is left for the prompt of the shell.
    height = (max(console.height, HEIGHT) if has_size else HEIGHT) - 1
    title = [*wrap(_title(run), width, indent=2, style="bold"), *processor_lines(run, width)]
    waits = _waits_text(run)
    if waits:
        title += wrap(waits, width, indent=2)
    facts = _program_facts(run, width, names_limit=bool(waits))
    end = [Text(), *wrap(_trust(run, width), width, indent=2)]
    if explain and height >= HEIGHT:
        end += [line for text in WORD_MEANINGS for line in wrap(f"  {text}", width, indent=2, style="dim")]
    end += wrap(MORE_EXPLAINED if explain else f"{MORE}{_next_command(run)}", width, indent=2, style="dim")
    end += _verdict(run, width)
    room = height - len(title) - len(facts) - len(end)
    if by_thread:
        middle = thread_lines(run, width, room)
    elif run.derived.why and not run.derived.advice:
        middle = why_lines(run.derived.why, width, room, explain=explain)
    elif run.derived.advice:
        # `advise` and `watch --advise` show the advice here. With -v they also show the path of a byte.
        middle = advice_lines(run, width, room, explain=explain)
    else:
        middle = next(
            lines
            for rows in range(ROWS_MAX if height < HEIGHT else height, ROWS_MIN - 1, -1)
            if len(lines := path_lines(run, width, rows, explain=explain)) <= room or rows == ROWS_MIN
        )
    # The rows of copies matter more than the facts about the program.
    print_lines([*title, *(facts if len(middle) <= room else []), *middle, *end], console)


def _verdict(run: Run, width: int) -> list[Text]:
    """Return a run's main result, or why the run is invalid and what to do next."""
    verdict = run.derived.verdict
    if verdict.valid or run.is_partial:
        return wrap(verdict.sentence, width, indent=2, style="bold")
    more = len(verdict.reasons) - 1
    also = f" (and {more} more: -v)" if more else ""
    reason = CHECK_NAME.sub("", verdict.reasons[0])
    lines = wrap(f"INVALID RUN: {reason}{also}", width, indent=2, style="bold red")
    if verdict.next:
        lines += wrap(f"next: {verdict.next}", width, indent=2, style="red")
    return lines


def _title(run: Run) -> str:
    """Return the title: the measured program or strategy, its goodput, and the run's duration."""
    goodput = run.derived.throughput_gbps
    rate = goodput.unprobed if goodput.unprobed is not None else goodput.probed
    speed = "goodput n/a" if rate is None else spelling.format_gbps(rate)
    probed = " with instruments attached" if rate is not None and goodput.unprobed is None else ""
    probed += beside_goodput(run.derived.machine_state)
    seconds = spelling.format_seconds(run.raw.run.measured_s)
    if (target := run.raw.target) is not None:
        if target.span_s:
            # The bytes, the seconds and the rate all refer to the same span of time.
            rate = (target.sent_bytes + target.received_bytes) * 8 / target.span_s / 1e9
            probed = beside_goodput(run.derived.machine_state)
            speed, seconds = spelling.format_gbps(rate), spelling.format_seconds(target.span_s)
        command = one_line(" ".join((target.command_text or "").split()), NAME_MAX)
        # Include the bytes between segments, because a short command may move most of its bytes there.
        sent, received = target.sent_bytes, target.received_bytes
        # A proxy receives and sends each byte, so that its goodput counts each byte twice.
        speed += " in and out" if rate and min(sent, received) >= SMALL_SHARE * (sent + received) else ""
        moved = f"{spelling.format_bytes(sent)} sent, {received_text(run)}"
        return f"{command or target.title}: {speed}{probed}, {moved} in {seconds}"
    work = run.raw.asked
    threads = spelling.counted(work.threads, "thread")
    size = spelling.format_bytes(work.size_bytes)
    return f"{work.impl}, {size}, {threads}, {run.raw.topology.kind}: {speed}{probed}, {seconds} measured"


def _program_facts(run: Run, width: int, *, names_limit: bool) -> list[Text]:
    """Return lines on how a watched program sends and receives, its own functions and its bottleneck.

    names_limit: True if another line says what the program waits for; a bottleneck elsewhere is then left out
    """
    lines: list[Text] = []
    portrait, limit = run.derived.portrait, run.derived.verdict.limit
    if portrait is not None:
        directions = {"sends": portrait.send, "receives": portrait.receive}
        moved = sum(direction.bytes for direction in directions.values() if direction)
        # A direction with few bytes, such as that of requests, is left out.
        texts = [
            _direction_text(verb, direction, run.raw.run.measured_s)
            for verb, direction in directions.items()
            if direction and direction.bytes >= SMALL_SHARE * moved
        ]
        lines += wrap("; ".join(texts), width, indent=2) if texts else []
    if functions := own_functions(run.raw):
        names = ", ".join(f"{one_line(name, NAME_MAX)} {percent(share)}" for name, share in functions)
        lines += wrap(f"own code: {names} of its CPU time", width, indent=2)
    if limit.who == "target" or (limit.who != "unknown" and not names_limit):
        lines += wrap(f"bottleneck: {limit.who} ({limit.decisive or limit.evidence})", width, indent=2)
    return lines


def _waits_text(run: Run) -> str:
    """Format the main reason why the program's threads wait.

    The text is empty if they hardly wait, or if the answer of `advise` already gives this reason.
    """
    if run.raw.waits is None:
        return ""
    waits = waiting(run.raw)
    if waits is None:
        return f"waits: n/a: {why_unknown(run.raw.waits)}"
    text, advice = waits.sentence() if waits.share >= MENTIONED_MIN else "", run.derived.advice
    is_answer = advice is not None and advice.answer is not None and text in advice.answer
    return f"waits: {text}" if text and not is_answer else ""


def _direction_text(verb: str, direction: Direction, seconds: float) -> str:
    """Format the calls of one direction, such as `sends: writev, 32 KiB, 40,000/s, MSG_ZEROCOPY 0 %`.

    The text names the system call that moved the most bytes, then gives means over all calls.

    verb: `sends` or `receives`
    seconds: time in which the calls were counted
    """
    main_call = max(direction.by_call, key=lambda call: call.bytes)
    rate = f", {spelling.format_count(round(direction.calls / seconds))}/s" if seconds > 0 else ""
    text = f"{verb}: {main_call.syscall}, {spelling.format_bytes(round(direction.mean_bytes))}{rate}"
    if verb != "sends":
        return text
    option = "SEND_ZC" if main_call.syscall == "io_uring" else "MSG_ZEROCOPY"
    return f"{text}, {option} {spelling.format_percent(direction.zerocopy_share)}"


def _next_command(run: Run) -> str:
    """Return the command that shows whether another send method would be cheaper, or "" if there is none."""
    if (target := run.raw.target) is not None:
        if target.command or run.derived.advice:
            return ""
        # The name of a cgroup is its option: `unit nginx.service`.
        name = f"--{target.name}" if target.how == "cgroup" else target.program
        # Name the watched processes by PID, because others of that name were not watched:
        # `nginx[12], nginx[34]` becomes 12,34.
        name = ",".join(PID.findall(name)) if target.how == "pid" else name
        return f"; advice: copyscope advise {one_line(name, NAME_MAX)}"
    work, path = run.raw.asked, run.raw.topology.kind
    if path not in ("veth", "loopback", "veth-xdp") or run.raw.places is not None:
        return ""
    options = f" --topology {path}" if path != "veth" else ""
    if work.size_bytes != DEFAULT_SIZE_BYTES:
        options += f" --size {spelling.option_size(work.size_bytes)}"
    return f"; copyscope compare {work.impl} {RIVALS.get(work.impl, DEFAULT_RIVAL)}{options}"


def _trust(run: Run, width: int) -> str:
    """Return a line on validity, cost of measuring, machine load and lost events that fits `width`."""
    checks = [check.holds for check in run.derived.identities if check.holds is not None]
    broken = "" if all(checks) else f", {sum(checks)} of {len(checks)} checks hold"
    is_valid = run.derived.verdict.valid
    validity = "valid" if is_valid else "interrupted" if run.is_partial else f"INVALID{broken}"
    state, overhead = run.derived.machine_state, run.derived.overhead
    watching = overhead.watching
    hooks = [text] if (text := hook_text(run.raw)) else []
    end = [_losses(run), *_sampling_gaps(run)]
    cost = _overheads(overhead.phases) if watching is None else watching_text(watching)
    # The title already states the disturbance, so this line only adds the advice.
    is_in_title = bool(beside_goodput(state))
    load = "machine quiet" if state.sentence is None else state.sentence
    load = load.rpartition(": ")[2] if is_in_title else load
    line = "; ".join([validity, cost, *hooks, load, *end])
    if len(line) <= width:
        return line
    if watching is None:
        cost = _short_cost("overhead", overhead)
    elif _is_unclear(watching):
        cost = "what watching cost could not be measured"
    elif watching.ratio is not None and watching.ratio > 1:
        # Goodput that is higher with instruments is noise, not a negative cost.
        cost = "watching cost nothing measurable"
    else:
        cost = _short_cost("watching cost", watching)
    return "; ".join([validity, cost, *hooks, load if is_in_title else load_text(state), *end])


def _sampling_gaps(run: Run) -> list[str]:
    """Return a text for each side that has too few samples for its CPU time.

    Samples are missing if a virtual machine's timers fire late and therefore miss short time slices.
    """
    checks = [check for check in run.derived.identities if check.name.endswith("_time")]
    shares = {check.name.removesuffix("_time"): _sampled_share(check) for check in checks}
    gaps = {side: share for side, share in shares.items() if share < SAMPLED_SHARE_MIN}
    return [
        f"samples cover {100 * share:.0f} % of the CPU time of the {side}" for side, share in gaps.items()
    ]


def _sampled_share(time_check: Identity) -> float:
    """Return the share of a side's CPU time that its samples cover; 1 if unknown."""
    return time_check.left / time_check.right if time_check.left and time_check.right else 1.0


def _overheads(phases: Mapping[str, PhaseEffect]) -> str:
    texts = [f"{name} {'n/a' if cost.ratio is None else _lost(cost, 1)}" for name, cost in in_order(phases)]
    return f"overhead, goodput lost: {', '.join(texts)}"


def watching_text(watching: Watching) -> str:
    """Format the goodput that watching cost the program."""
    if watching.ratio is None:
        return "what watching cost: n/a"
    lost = _lost(watching, 1, " of goodput")
    if _is_unclear(watching):
        return f"what watching cost could not be measured: {lost}: watch longer"
    return f"watching cost {lost}"


def _short_cost(name: str, cost: Ratio) -> str:
    """Format a cost in whole percent, or as unclear. `name`: name of the cost in the text."""
    if cost.ratio is None:
        return f"{name} n/a"
    return f"{name} unclear" if _is_unclear(cost) else f"{name} {_lost(cost, 0)}"


def _is_unclear(cost: Ratio) -> bool:
    """Return True if the interval includes both no effect and a large one."""
    if cost.low is None or cost.high is None:
        return False
    return machine_state.describe_effect(cost.low, cost.high) == machine_state.NOISY


def _lost(cost: Ratio, decimals: int, of_what: str = "") -> str:
    """Format a loss of goodput in percent, with its interval if known.

    cost: goodput with instruments divided by goodput without instruments
    of_what: text after the number
    """
    # A high ratio means a low loss, so the ends of the interval change places.
    low, loss, high = (_loss_percent(ratio, decimals) for ratio in (cost.high, cost.ratio, cost.low))
    return f"{loss} %{of_what}" if low is None else f"{loss} %{of_what} ({low} to {high})"


def _loss_percent(ratio: float | None, decimals: int) -> str | None:
    # Adding 0.0 turns -0.0 into 0.0.
    return None if ratio is None else f"{round((1 - ratio) * 100, decimals) + 0.0:.{decimals}f}"


def _losses(run: Run) -> str:
    """Format how many events the instruments lost, and how many loss counters are unknown."""
    counters = run.derived.loss
    lost = [_loss_text(name, loss) for name, loss in counters.items() if loss.count]
    unknown = sum(loss.count is None for loss in counters.values())
    text = f"lost: {', '.join(lost)}" if lost else "nothing lost" if counters else "losses not known"
    return f"{text} ({spelling.counted(unknown, 'counter')} n/a)" if unknown else text


def _loss_text(name: str, loss: Loss) -> str:
    total = f" of {loss.of:,}" if loss.of else ""
    return f"{loss.count:,}{total} {name.removeprefix('recursion_')}"


# Summary of several runs of the same workload: a row for each run, and medians over the valid runs.


class CopyKey(NamedTuple):
    """Key of a copy's row in the summary of several runs."""

    account: str
    side: str
    context: str


def render_summary(runs: Sequence[Run], console: Console) -> None:
    """Print a summary of several runs: each run's goodput, then each copy's median cost.

    A copy's cost is the median, with the range, over the valid runs.
    """
    width = report_width(console)
    valid = [run for run in runs if run.derived.verdict.valid]
    end = _goodput_lines(valid, width) + _account_lines(valid, width)
    lines = _run_lines(runs, len(runs), width)
    # The summary is shortened to one screen, because the report of each run is printed above it.
    height = max(console.height, HEIGHT) - 1 if console.is_terminal else len(lines + end)
    shown = len(runs)
    while shown and len(lines + end) > height:
        shown -= 1
        lines = _run_lines(runs, shown, width)
    print_lines(lines + end, console)


def _run_lines(runs: Sequence[Run], shown: int, width: int) -> list[Text]:
    """Return a table with a row for each of `shown` runs.

    shown: maximum number of rows; if some runs have no row, invalid runs come first
    """
    lines = heading("RUNS", "goodput of the segments without instruments", width)
    more = len(runs) - shown
    if more:
        runs = sorted(runs, key=lambda run: run.derived.verdict.valid)
    table = TextTable(("run",), "goodput", "messages", "verdict", words=("verdict",))
    reasons: list[Text] = []
    for run in runs[:shown]:
        verdict = run.derived.verdict
        goodput = run.derived.throughput_gbps.unprobed
        disturbance = OPENINGS.get(disturbance_kind(run.derived.machine_state) or "")
        validity = f"valid; {disturbance}" if disturbance else "valid"
        if not verdict.valid:
            validity = f"{'interrupted' if run.is_partial else 'INVALID'}, left out"
        table.add(
            run.raw.run.id,
            None if goodput is None else spelling.format_gbps(goodput),
            spelling.format_count(run.derived.messages),
            validity,
        )
        if not verdict.valid:
            other_reasons = len(verdict.reasons) - 1
            also = f" (and {other_reasons} more)" if other_reasons else ""
            reason = f"{run.raw.run.id}: {verdict.reasons[0]}{also}"
            reasons += wrap(reason, width, indent=2, style="red")
        if verdict.next:
            reasons += wrap(f"{run.raw.run.id}: next: {verdict.next}", width, indent=2, style="red")
    lines += table.lines(width) + reasons
    return [*lines, Text(f"and {more} more: see the reports above")] if more else lines


def _goodput_lines(valid: Sequence[Run], width: int) -> list[Text]:
    gbps = [g for run in valid if (g := run.derived.throughput_gbps.unprobed) is not None]
    text = "n/a: no valid run has a segment without instruments"
    if gbps:
        middle, low, high = map(spelling.format_gbps, (median(gbps), min(gbps), max(gbps)))
        text = f"median {middle}, {low} .. {high} ({spelling.counted(len(gbps), 'run')})"
    return [Text(), *labelled("goodput", text, width)]


def _account_lines(valid: Sequence[Run], width: int) -> list[Text]:
    """Return a table with the median and range of each copy's cost. `valid`: the valid runs."""
    lines = heading("COPIES", "ns/KiB: median and range (not an interval) over the valid runs", width)
    values: dict[CopyKey, list[float]] = defaultdict(list)
    for run in valid:
        for row in occurring(run.derived.ledger):
            if row.ns_per_kib is not None:
                values[CopyKey(row.account, row.side, row.context)].append(row.ns_per_kib)
    table = TextTable(("account", "side", "where"), "median", "min..max", "runs")
    for key in sorted(values, key=lambda key: flow_order(*key)):
        numbers = values[key]
        table.add(
            *key,
            spelling.format_tenths(median(numbers)),
            spelling.format_interval(min(numbers), max(numbers)),
            f"{len(numbers)} of {len(valid)}",
        )
    return lines + (table.lines(width) or wrap("n/a: no valid run attributes a copy", width, indent=2))
