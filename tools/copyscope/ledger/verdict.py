"""May this run be believed: what was lost, validity with its reasons, and what to do next. Pure."""

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from copyscope.ledger.machine_state import OPENINGS, remedy
from copyscope.record.derived import Identity, Limit, Verdict
from copyscope.record.hooks import absent, find, why_absent
from copyscope.record.instruments import Functions, Hook, Loss
from copyscope.record.measured import Measured, Segment
from copyscope.record.segments import (
    SHORTEST_LEDGER_NS,
    counted_whole,
    cut_short,
    duration_s,
    measured,
    select,
    total,
    used,
    wall_ns,
)
from copyscope.record.traffic import Traffic
from copyscope.record.watched import FILE, MAPPED_IN, SPLICED_IN, TAKEN, added


def _calls(*directions: str) -> Callable[[Measured], int]:
    return lambda raw: added([row for row in raw.volume if row.direction in directions], "calls")


def _taken(raw: Measured) -> int:
    return added([row for row in raw.volume if row.syscall in TAKEN], "calls")


def _notifications(raw: Measured) -> int:
    return total(raw.run.segments, "target", "notifications")


def _rounds(raw: Measured) -> int:
    return added(raw.shapes or [], "sends")


# How much each hook on a watched program saw of it, and of what another loss of it is a part.
SEEN_BY_WATCHING: dict[str, Callable[[Measured], int]] = {
    # Each call of a socket that found no place, its first and the later ones.
    "watch_socket_map_full": lambda raw: raw.watched.send_calls + raw.watched.receive_calls,
    "volume_sent": _calls("send"),
    "volume_sent_at_exit": _calls("send"),
    "volume_received": _calls("receive", "peek"),
    "volume_copied_out": _calls("copy_out"),
    "volume_spliced": _taken,
    "splice_seen": _taken,
    "completion": _notifications,
    "uring_complete": _notifications,
    "process_fork": lambda raw: raw.watched.forks,
    "process_exit": lambda raw: raw.watched.exits,
    "thread_exit": lambda raw: raw.watched.exits,
    "packet": lambda raw: raw.packets.packets if raw.packets else 0,
    "shape": lambda raw: added(raw.shapes or [], "messages"),
    "round": _rounds,
    "round_end": _rounds,
}
# Calls of a socket that found no place are not counted by connection, but they are among all calls.
COUNTED_ALL_THE_SAME = ("watch_socket_map_full",)
# Looks at clock and counters that something stopped.
STOPPED = "functions_look_stopped"


def losses(raw: Measured) -> dict[str, Loss]:
    """The loss section: {name: {count, of, share}}; raw entries are plain counts or already of this form.

    The whole of which something was lost follows from the counter's name: samples_*, calls_*, functions_*;
    recursion_<hook> and missed_<hook> are of what that hook counts, of its instrument, or that function's own
    calls. The kernel counts what a hook missed of all programs together: of one, no more than that. It stays
    null for any other counter, and for one of which nothing was seen at all. A count that the kernel does not
    give is null, with the reason.
    """
    return {name: _loss(raw, name, given) for name, given in raw.loss.items()}


def lost(raw: Measured, name: str) -> int | None:
    """A count; None where it is not known, or there is no such."""
    given = raw.loss.get(name)
    return given.count if isinstance(given, Loss) else given


def stopped_looks(raw: Measured) -> tuple[int, int] | None:
    """How many timed copies were left out, as a look was stopped, and of how many; None: not known."""
    count = lost(raw, STOPPED)
    if raw.functions is None or count is None:
        return None
    return count, added(raw.functions.cells, "timed_calls") + count


def _loss(raw: Measured, name: str, given: int | Loss) -> Loss:
    count, of = (given.count, given.of) if isinstance(given, Loss) else (given, None)
    if count is None:
        return Loss(None, reason=given.reason if isinstance(given, Loss) else None)
    if of is None:
        seen = _seen(raw, name)
        of = seen + (0 if name in COUNTED_ALL_THE_SAME else count) if seen else None
    if count == 0:
        return Loss(0, of, 0.0)
    return Loss(count, of, count / of if of else None)


def _seen(raw: Measured, name: str) -> int | None:
    skipped = name.removeprefix("recursion_").removeprefix("missed_")
    if raw.target is not None and skipped in SEEN_BY_WATCHING:
        return SEEN_BY_WATCHING[skipped](raw)
    hook = find(raw.hooks, skipped)
    instrument = hook.instrument if hook else name.split("_", maxsplit=1)[0]
    match instrument:
        case "samples":
            return added(raw.samples, "samples")
        case "splices":
            taken = ((SPLICED_IN, "receive"), (MAPPED_IN, "mapped"))
            rows = raw.volume if raw.target is not None else []
            counted = added([row for row in rows if (row.syscall, row.direction) in taken], "calls")
            # One at the end of a stream moves nothing: where no other was seen, of all that received.
            return counted or added([row for row in rows if row.direction == "receive"], "calls")
        case "bytes" | "calls":
            return added(raw.bytes if instrument == "bytes" else raw.calls, "calls")
        case "functions" if raw.functions is not None:
            return _seen_by(raw.functions, hook) if hook else _seen_in(raw.functions, name)
    return None


def _seen_in(functions: Functions, name: str) -> int:
    """The whole that a loss which the programs counted themselves is a part of."""
    match name:
        case "functions_look_stopped" | "functions_counter_unreadable":
            # Each timed call is read at least once.
            return added(functions.cells, "timed_calls")
        case "functions_zerocopy_map_full":
            return sum(row.copied + row.zerocopied for row in functions.completions or [])
    # What breaks or overflows a stack spoils one copy.
    return added(functions.cells, "calls")


def _seen_by(functions: Functions, hook: Hook) -> int:
    """Calls of one hooked function. What only delimits copies counts nothing: a lost call spoils one."""
    category = hook.category or None
    calls = added([cell for cell in functions.cells if cell.category == category], "calls")
    return calls or added(functions.cells, "calls")


MOST_LOSS_SHARE = 0.001
# Of samples: no share moves by more than that. The interval of ten thousand is as wide.
MOST_SAMPLES_SHARE = 0.01
# Two counts that differ by no more than this, their tolerance with it, prove each other.
PROVEN_SHARE = 0.01
# Chance decides which looks are stopped, not the copy: those that are left are as good.
MOST_STOPPED_SHARE = 0.05
# Spliced out of a socket until a hook counted that: it is missing in the sum of what was received, and in no
# account or rate.
MOST_UNCOUNTED_SHARE = 0.01
FORGIVEN = {STOPPED: MOST_STOPPED_SHARE, "splices_before_their_hook": MOST_UNCOUNTED_SHARE}
AGAIN = "run it once more"
REPORT = "keep the run with --json FILE and report it"
NO_CALLS = f"{AGAIN} with --instruments counters,sampler: system calls are not followed then"
FEWER_FUNCTIONS = f"{AGAIN} with a larger --gate, or with --attach kprobe.multi"
FEWER_PROCESSES = "watch a part of it (--pid, --unit): it has more than copyscope has places for"
SLOWER = f"{AGAIN} with a lower --frequency"
NAMELESS = f"-vv lists the functions that no rule names: {REPORT}"
SIDES = ("sender", "receiver", "target")
# How a reason begins -> what to do; the first that fits. Some reasons say it themselves.
STEPS = (
    ("interrupted", f"{AGAIN}, to its end"),
    *((f"identity {side}_attributed", NAMELESS) for side in SIDES),
    ("identity ", f"{AGAIN}; if the same two disagree again, {REPORT}"),
    ("loss: samples_", SLOWER),
    ("loss: calls_", NO_CALLS),
    ("loss: functions_", FEWER_FUNCTIONS),
    ("loss: watch_arguments_unreadable", f"{AGAIN}; if it happens again, {REPORT}"),
    ("loss: watch_", FEWER_PROCESSES),
    ("loss: splices_", f"{AGAIN}, while it splices: from its first segment on they are counted then"),
    ("loss: ", f"{AGAIN}; if it is lost again, {REPORT}"),
    ("too short a command: ", f"{AGAIN} with --whole: it counts all of a short command"),
    ("too short: ", f"{AGAIN}, longer"),
    ("nothing was sent", "watch it while it is sending or receiving (--live shows when)"),
    ("hook ", "copyscope doctor says what this kernel allows"),
)
# By the instrument of a hook that was skipped or did not fire: what to do.
STEPS_OF_HOOKS = {"calls": NO_CALLS, "functions": FEWER_FUNCTIONS, "sampler": SLOWER}
OTHERWISE = f"fix what the first reason names, and {AGAIN}"
# What a busy machine makes: clocks and samples that disagree. Counts do not differ because somebody is busy.
OF_BUSY_MACHINES = (
    *(f"identity {side}_time:" for side in SIDES),
    *("identity within_cpus:", "identity gather_fits:", "loss: samples_"),
)
# Of own traffic: the check that compares a hook's bytes with those of the program.
COUNTED_TWICE = {
    "send_bytes": "sent_bytes",
    "receive_bytes": "received_bytes",
    "copy_out_bytes": "received_split",
}
# Of a watched program: the check that compares what a hook counts with another count of the same.
COUNTED_BY_ANOTHER = {
    **dict.fromkeys(("volume_sent", "volume_sent_at_exit"), "connection_sent_bytes"),
    **dict.fromkeys(
        ("volume_received", "volume_spliced", "splices_before_their_hook"), "connection_received_bytes"
    ),
    "volume_copied_out": "received_split",
}
CALLS_BY_ANOTHER = ("call_sent_bytes", "call_received_bytes")
# No number rests on these: a closed socket keeps its place until it is destroyed, splicing is seen at the
# next call, and the others count for averages of the portrait.
NO_NUMBER = ("socket_closed", "socket_destroyed", "splice_seen", "packet", "shape", "round", "round_end")


def find_verdict(
    raw: Measured,
    identities: Sequence[Identity],
    loss: Mapping[str, Loss],
    busy: str | None,
    finding: tuple[str, Limit],
) -> Verdict:
    """The verdict; a run with a reason against it says so before anything else.

    busy: the disturbance of `machine_state`. finding: one sentence, and who was the limit.
    """
    sentence, limit = finding
    found = broken_identities(identities)
    if raw.target is not None:
        lost = heavy_losses(loss, complete_of_program(raw, identities))
        found = silence(raw) + found + lost + too_short_beside(raw)
    else:
        found += (
            heavy_losses(loss, complete_hooks(raw, identities)) + of_traffic(raw.reports) + too_short(raw)
        )
    # Hooks that an instrument of this run cannot do without and that did not attach.
    missing = (hook for hook in absent(raw.hooks) if used(raw.run, hook.instrument))
    reasons = interrupted(raw) + found + [f"hook {hook.id}: {why_absent(hook)}" for hook in missing]
    if raw.run.interrupted and len(reasons) == 1:
        sentence = f"{reasons[0]}; {sentence}"
    elif reasons:
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        sentence = f"not valid: {reasons[0]}{more}; do not quote this run. {sentence}"
    step = next_step(reasons, busy, duration_s(raw), raw.hooks)
    return Verdict(valid=not reasons, reasons=reasons, sentence=sentence, limit=limit, next=step)


def interrupted(raw: Measured) -> list[str]:
    """What went wrong with the run itself: that it was stopped, and after how much; a program that died."""
    if not raw.run.interrupted:
        return [f"run: {error}" for error in raw.run.errors]
    asked_s = duration_s(raw)
    of = "" if asked_s is None else f" of {asked_s:g}"
    errors = [f"run: {error}" for error in raw.run.errors if not error.startswith("interrupted")]
    return [f"interrupted: {raw.run.measured_s:.1f}{of} s measured", *errors]


def broken_identities(identities: Sequence[Identity]) -> list[str]:
    """Each identity that was checked and does not hold."""
    return [
        f"identity {i.name}: {i.what}: {i.left:,} is not {i.right:,} {i.unit}"
        for i in identities
        if i.holds is False
    ]


def heavy_losses(losses: Mapping[str, Loss], complete: Collection[str] = ()) -> list[str]:
    """What was lost beyond what is forgiven, or of an unknown whole; not what `complete` hooks missed."""
    found = []
    for name, loss in losses.items():
        if not loss.count or name.removeprefix("recursion_") in complete:
            continue
        of_samples = name.startswith("samples_")
        most = FORGIVEN.get(name, MOST_SAMPLES_SHARE if of_samples else MOST_LOSS_SHARE)
        if loss.share is None:
            found.append(f"loss: {name}: {loss.count:,} of an unknown number")
        elif loss.share > most and not (of_samples and loss.count == 1):
            found.append(f"loss: {name}: {loss.count:,} of {loss.of:,}: more than {most * 100:g} %")
    return found


def complete_hooks(raw: Measured, identities: Sequence[Identity]) -> list[str]:
    """Hooks whose misses spoil no sum of the run: the kernel counts those of all programs together.

    Of some our programs' own counts say that nothing of the run is missing. Others time calls, and our
    programs say how many they made: no more than the known misses are left out.
    """
    exact = {row.name for row in identities if row.holds and row.left == row.right}
    found = [hook for hook, check in COUNTED_TWICE.items() if check in exact]
    if any(row.name == "timed_calls" and row.holds for row in identities):
        found += [hook.id for hook in raw.hooks if hook.instrument == "calls"]
    return found


def complete_of_program(raw: Measured, identities: Sequence[Identity]) -> list[str]:
    """The same of a watched program: what a hook missed is in no number, or another count has it, too.

    The kernel counts what it skipped of all programs of the machine together.
    """
    proven = {row.name for row in identities if is_proof(row)}
    found = [hook for hook, check in COUNTED_BY_ANOTHER.items() if check in proven]
    broken = {row.name for row in identities if row.holds is False}
    if proven.intersection(CALLS_BY_ANOTHER) and not broken.intersection(CALLS_BY_ANOTHER):
        found += [hook.id for hook in raw.hooks if hook.instrument == "calls"]
    if not any(row.zerocopy_calls for row in raw.volume):
        found.append("completion")
    if not any(row.syscall == "io_uring" for row in raw.volume):
        found.append("uring_complete")
    return [*NO_NUMBER, *found]


def is_proof(row: Identity) -> bool:
    """Whether two counts are so near to each other that nothing that matters is missing."""
    if not row.holds or not row.left or not row.right:
        return False
    return abs(row.left - row.right) + row.tolerance <= PROVEN_SHARE * row.right


def silence(raw: Measured) -> list[str]:
    """A program that moved nothing has no ledger; what goes through a tun device is seen by its time only."""
    moved = any(row.bytes for row in raw.volume if row.protocol != FILE)
    if moved or any(row.category == "tun" for row in raw.samples):
        return []
    return [
        f"nothing was sent or received over TCP, MPTCP, UDP or UNIX sockets by {raw.watched.name} in "
        f"{raw.run.measured_s:.1f} s"
    ]


def of_traffic(traffic: Traffic) -> list[str]:
    """What either program reported: errors, wrong payload, zero-copy sends that were never given back."""
    reports = {"sender": traffic.sender, "receiver": traffic.receiver}
    found = [f"{side}: {error}" for side, report in reports.items() for error in report.errors]
    verify = traffic.receiver.verify
    if verify is not None and verify.wrong_bytes:
        found.append(
            f"receiver: {verify.wrong_bytes:,} wrong bytes of {verify.checked_bytes:,} checked, "
            f"the first at offset {verify.first_wrong_offset}"
        )
    if traffic.sender.zerocopy and (left := traffic.sender.zerocopy.in_flight):
        found.append(f"sender: {left:,} zero-copy sends were never completed: the run ended before them")
    return found


def too_short(raw: Measured) -> list[str]:
    """No time with instruments, or too little to leave the socket buffers."""
    reported = raw.reports.sender.too_short_reason
    # the control strategy sends nothing, however long it runs
    if reported and total(measured(raw.run.segments), "sender", "bytes"):
        return [f"too short: {reported}"]
    return below_the_shortest(raw.run.segments, "to leave the socket buffers")


def too_short_beside(raw: Measured) -> list[str]:
    """The same of a program, unless all that it moved was counted."""
    if cut_short(raw.run) or counted_whole(raw):
        return []
    what = "too short a command" if raw.watched.how == "command" else "too short"
    return below_the_shortest(raw.run.segments, "to say what copies cost", what)


def below_the_shortest(segments: Sequence[Segment], why: str, what: str = "too short") -> list[str]:
    """A run without the ledger's instruments (--instruments calls) is judged by those that it has."""
    probed = select(segments, "ledger") or [s for s in measured(segments) if s.phase != "unprobed"]
    elapsed_ns = wall_ns(probed)
    if elapsed_ns >= SHORTEST_LEDGER_NS:
        return []
    return [
        f"{what}: {elapsed_ns / 1e6:.1f} ms with instruments, at least "
        f"{SHORTEST_LEDGER_NS // 1_000_000} ms are needed {why}"
    ]


def next_step(
    reasons: Sequence[str], busy: str | None, duration_s: float | None, hooks: Iterable[Hook] = ()
) -> str:
    """What to do after a run that is not valid, by its first reason.

    Empty for a run that nothing is held against. busy: the disturbance of `machine_state`.
    """
    if not reasons:
        return ""
    first = reasons[0]
    if busy in OPENINGS and first.startswith(OF_BUSY_MACHINES):
        return f"{OPENINGS[busy]}: {remedy(duration_s, busy=True)}"
    if (skipped := re.match(r"loss: (?:recursion|missed)_(\w+)", first)) is not None:
        hook = find(hooks, skipped[1])
        if hook is not None and hook.instrument in STEPS_OF_HOOKS:
            return STEPS_OF_HOOKS[hook.instrument]
    return next((step for start, step in STEPS if first.startswith(start)), OTHERWISE)
