"""What is said first of a run: goodput, the verdict, the path of a byte as bars, and how far to trust it.

At most 24 lines of 80 columns on a terminal that was never made larger; a larger one is used.
"""

import re
from collections.abc import Mapping

from rich.console import Console
from rich.text import Text

from copyscope import units
from copyscope.escaping import one_line
from copyscope.ledger import machine_state, overhead
from copyscope.record.check import Whole
from copyscope.record.derived import Identity, MachineState, PhaseEffect, Ratio, Watching
from copyscope.record.instruments import Loss
from copyscope.record.portrait import Direction
from copyscope.show.advice import advice_lines
from copyscope.show.console import has_screen, print_lines
from copyscope.show.evidence import in_order
from copyscope.show.layout import wrap
from copyscope.show.path_table import SMALL_SHARE, path_lines
from copyscope.show.processors import processor_lines
from copyscope.show.threads import thread_lines
from copyscope.show.why import why_lines

# What a terminal that says nothing is thought to have.
WIDTH, HEIGHT = 80, 24
# Of the CPU time of a side; below, it is said.
SEEN_LEAST = 0.8
WIDTH_MAX = 160
ROWS_MIN = 4
# On a terminal that was never made taller; others show as many as they have lines for.
ROWS_MAX = 8
NAME_MAX = 48  # of a command with its arguments
MORE = "more: -v (all), --explain, --json FILE"
MORE_EXPLAINED = "more: -v --explain (all tables, what each line means, the path drawn)"
PID = re.compile(r"\[(\d+)\](?=, |$)")
# What a strategy is compared with.
PLAIN = "one_copy"
INSTEAD_OF = {PLAIN: "zero_copy", "relay_copy": "relay_splice", "relay_splice": "relay_copy"}
USUAL_BYTES = 1 << 16
# Where there is room for them.
WORDS_MEAN = (
    "valid: bytes that are counted in two places agree, and nothing failed",
    "±: half of the 95 % interval; share: of all CPU time",
    "overhead: goodput lost by watching, and its 95 % interval; -v shows more",
    "cores: CPUs that 10 Gb/s would keep busy",
)


def render(run: Whole, console: Console, *, explain: bool = False, by_thread: bool = False) -> None:
    """Print it, or fewer rows, each with what it means; or a line for each name of its threads.

    The last line is the verdict's: above it a long screen may have scrolled away.
    """
    says_its_size = has_screen(console)
    width = min(console.width, WIDTH_MAX if says_its_size else WIDTH)
    # One line is the prompt's.
    height = (max(console.height, HEIGHT) if says_its_size else HEIGHT) - 1
    title = [*wrap(_title(run), width, indent=2, style="bold"), *processor_lines(run, width)]
    facts = _facts(run, width)
    end = [Text(), *wrap(_trust(run, width), width, indent=2)]
    if explain and height >= HEIGHT:
        end += [line for text in WORDS_MEAN for line in wrap(f"  {text}", width, indent=2, style="dim")]
    end += wrap(MORE_EXPLAINED if explain else f"{MORE}{_next(run)}", width, indent=2, style="dim")
    end += _verdict(run, width)
    room = height - len(title) - len(facts) - len(end)
    if by_thread:
        between = thread_lines(run, width, room)
    elif run.derived.why and not run.derived.advice:
        between = why_lines(run.derived.why, width, room, explain=explain)
    elif run.derived.advice:
        # What was asked for is the answer: where the time goes is behind -v then.
        between = advice_lines(run, width, room, explain=explain)
    else:
        between = next(
            lines
            for rows in range(ROWS_MAX if height < HEIGHT else height, ROWS_MIN - 1, -1)
            if len(lines := path_lines(run, width, rows, explain=explain)) <= room or rows == ROWS_MIN
        )
    # Where there is no room for them, the rows of copies come first.
    print_lines([*title, *(facts if len(between) <= room else []), *between, *end], console)


def _verdict(run: Whole, width: int) -> list[Text]:
    verdict = run.derived.verdict
    if verdict.valid or run.is_partial:
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
        # Also between segments: of a short command that may be most.
        sent, received = run.raw.target.sent_bytes, run.raw.target.received_bytes
        # Of a proxy each byte is in it twice.
        speed += " in and out" if rate and min(sent, received) >= SMALL_SHARE * (sent + received) else ""
        moved = f"{units.format_bytes(sent)} sent, {units.format_bytes(received)} received"
        return f"{name}: {speed}, {moved}, {measured} measured"
    work = run.raw.asked
    threads = units.counted(work.threads, "thread")
    size = units.format_bytes(work.size_bytes)
    return f"{work.impl}, {size}, {threads}, {run.raw.topology.kind}: {speed}, {measured} measured"


def _facts(run: Whole, width: int) -> list[Text]:
    """How a watched program sends and receives, and what kept goodput from being higher."""
    lines: list[Text] = []
    portrait, limit = run.derived.portrait, run.derived.verdict.limit
    if portrait is not None:
        ways = {"sends": portrait.send, "receives": portrait.receive}
        known = {verb: one for verb, one in ways.items() if one is not None}
        moved = sum(one.bytes for one in known.values())
        # Requests of a few bytes are not what is asked about.
        said = [
            _way(verb, one, run.raw.run.measured_s)
            for verb, one in known.items()
            if one.bytes >= SMALL_SHARE * moved
        ]
        lines += wrap("; ".join(said), width, indent=2) if said else []
    if limit.who != "unknown":
        lines += wrap(f"bottleneck: {limit.who} ({limit.decisive or limit.evidence})", width, indent=2)
    return lines


def _way(verb: str, one: Direction, seconds: float) -> str:
    """`sends: writev, 32 KiB, 40,000/s, MSG_ZEROCOPY 0 %`: the call that moved most, and the mean of all.

    By its own name: sendfile and splice are zero-copy, too.
    """
    most = max(one.by_call, key=lambda call: call.bytes)
    rate = f", {units.format_count(round(one.calls / seconds))}/s" if seconds > 0 else ""
    text = f"{verb}: {most.syscall}, {units.format_bytes(round(one.mean_bytes))}{rate}"
    if verb != "sends":
        return text
    asked = "SEND_ZC" if most.syscall == "io_uring" else "MSG_ZEROCOPY"
    return f"{text}, {asked} {units.format_percent(one.zerocopy_share)}"


def _next(run: Whole) -> str:
    """The command that says whether another way would be cheaper."""
    if (target := run.raw.target) is not None:
        if target.command or run.derived.advice:
            return ""
        # A cgroup is called by its option: `unit nginx.service`.
        name = f"--{target.name}" if target.how == "cgroup" else target.comm or target.name
        # Others of that name were not watched: `nginx[12], nginx[34]` is 12,34.
        name = ",".join(PID.findall(name)) if target.how == "pid" else name
        return f"; advice: copyscope advise {one_line(name, NAME_MAX)}"
    work, path = run.raw.asked, run.raw.topology.kind
    if path not in ("veth", "loopback", "veth-xdp") or run.raw.places is not None:
        return ""
    options = f" --topology {path}" if path != "veth" else ""
    if work.size_bytes != USUAL_BYTES:
        options += f" --size {units.option_size(work.size_bytes)}"
    return f"; copyscope compare {work.impl} {INSTEAD_OF.get(work.impl, PLAIN)}{options}"


def _trust(run: Whole, width: int) -> str:
    """Whether it counts, what measuring cost, how quiet the machine was, what was lost: all in one line."""
    valid = run.derived.verdict.valid
    checks = [one.holds for one in run.derived.identities if one.holds is not None]
    broken = "" if all(checks) else f", {sum(checks)} of {len(checks)} checks hold"
    said = "valid" if valid else "interrupted" if run.is_partial else f"INVALID{broken}"
    state, end = run.derived.machine_state, _losses(run)
    section = run.derived.overhead
    watching = section.watching
    whole = [said, _overheads(section.phases) if watching is None else watching_text(watching)]
    whole += [state.sentence or "machine quiet", end]
    unseen = _unseen(run)
    whole += unseen
    if len(line := "; ".join(whole)) <= width:
        return line
    # What a line of 80 columns can hold.
    cost = _in_short("overhead", section) if watching is None else _in_short("watching cost", watching)
    return "; ".join([said, cost, quiet(state), end, *unseen])


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
    lost = _lost(watching, 1, " of goodput")
    if _is_unclear(watching):
        return f"what watching cost is unclear: {lost}: watch longer"
    return f"watching cost {lost}"


def _in_short(name: str, cost: Ratio) -> str:
    """In whole percent; nothing where no effect and a large one are as likely."""
    if cost.ratio is None:
        return f"{name} n/a"
    return f"{name} {'unclear' if _is_unclear(cost) else _lost(cost, 0)}"


def _is_unclear(cost: Ratio) -> bool:
    if cost.low is None or cost.high is None:
        return False
    return overhead.found(cost.low, cost.high) == overhead.NOISY


def _lost(cost: Ratio, decimals: int, of: str = "") -> str:
    """The loss of goodput in percent, and its interval where there is one."""
    low, ratio, high = (
        # A loss of -0.0 is none.
        None
        if getattr(cost, key) is None
        else f"{round((1 - getattr(cost, key)) * 100, decimals) + 0.0:.{decimals}f}"
        for key in ("high", "ratio", "low")
    )
    return f"{ratio} %{of}" if low is None else f"{ratio} %{of} ({low} to {high})"


def quiet(state: MachineState) -> str:
    kind = machine_state.disturbance_of(state)
    if kind is None:
        return "machine quiet"
    if kind == machine_state.PEER:
        return f"its peer took {machine_state.peers_share(state) * 100:.0f} %"
    taken = sum(share or 0.0 for share in (state.others_share, state.steal_share))
    if kind == machine_state.UNSTEADY:
        return f"goodput varied {(state.spread_share or 0.0) * 100:.0f} %"
    return f"busy: others took {taken * 100:.0f} %"


def _losses(run: Whole) -> str:
    counts = run.derived.loss
    lost = [_lost_at(name, one) for name, one in counts.items() if one.count]
    unknown = sum(one.count is None for one in counts.values())
    said = f"lost: {', '.join(lost)}" if lost else "nothing lost" if counts else "losses not known"
    return f"{said} ({units.counted(unknown, 'counter')} n/a)" if unknown else said


def _lost_at(name: str, one: Loss) -> str:
    whole = f" of {one.of:,}" if one.of else ""
    return f"{one.count:,}{whole} {name.removeprefix('recursion_')}"
