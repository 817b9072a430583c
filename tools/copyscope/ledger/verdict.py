# SPDX-License-Identifier: GPL-2.0-only
"""The verdict: validity of a run with its reasons, what to do next, and what limited goodput. Pure."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import chain

from copyscope.base import spelling
from copyscope.ledger.attribution import cpu_time
from copyscope.ledger.losses import STOPPED
from copyscope.ledger.machine_state import OPENINGS, repeat_advice
from copyscope.record.derived import Identity, Limit, Sides, Verdict
from copyscope.record.instruments import Hook, Loss
from copyscope.record.measured import Measured, Segment, Workload
from copyscope.record.segments import (
    PROCESSES,
    SHORTEST_LEDGER_NS,
    absent_hooks,
    bytes_sent,
    counted_whole,
    duration_s,
    ended_inside_segment,
    find_hook,
    machines,
    measured,
    select,
    uses_instrument,
    wall_ns,
    why_absent,
)
from copyscope.record.traffic import Traffic
from copyscope.record.watched import FILE_PROTOCOL, added

LOSS_SHARE_MAX = 0.001
# Maximum fraction (0..1) of the samples that may be lost. The loss changes no share by more than this part,
# which is as much as the width of a share's interval with ten thousand samples.
LOST_SAMPLES_SHARE_MAX = 0.01
# Two counts confirm each other if their difference and its tolerance add up to at most this fraction (0..1)
# of the count.
PROVEN_SHARE = 0.01
# Name of a loss -> maximum lost fraction (0..1), if it differs from the common limit. Interruptions hit
# readings at random, so the remaining readings are unbiased. Bytes spliced out of a socket before a hook
# counted them are missing from the received total only: no account and no rate contains such bytes.
LOSS_SHARE_MAX_BY_NAME = {STOPPED: 0.05, "splices_before_their_hook": 0.01}
# Advice on how to make a run valid, used in STEPS.
AGAIN = "run it once more"
REPORT = "keep the run with --json FILE and report it"
NO_CALLS = f"{AGAIN} with --instruments counters,sampler, which follows no system calls"
FEWER_FUNCTIONS = f"{AGAIN} with a larger --gate, or with --attach kprobe.multi"
FEWER_PROCESSES = (
    "watch a part of the program (--pid, --unit): it has more processes or sockets than copyscope can follow"
)
LESS_SAMPLING = f"{AGAIN} with a lower --frequency"
UNNAMED_FUNCTIONS = f"-vv lists the functions without a taxonomy rule: {REPORT}"
SIDES = ("sender", "receiver", "target")
# Pairs of (beginning of a reason, advice on the next step). The first match applies. Some reasons contain
# their next step.
STEPS = (
    ("interrupted", f"{AGAIN}, without an interruption"),
    *((f"identity {side}_attributed", UNNAMED_FUNCTIONS) for side in SIDES),
    ("identity ", f"{AGAIN}; if the same two numbers disagree again, {REPORT}"),
    ("loss: samples_", LESS_SAMPLING),
    ("loss: calls_", NO_CALLS),
    ("loss: functions_", FEWER_FUNCTIONS),
    ("loss: watch_arguments_unreadable", f"{AGAIN}; if it happens again, {REPORT}"),
    ("loss: watch_", FEWER_PROCESSES),
    (
        "loss: splices_",
        f"{AGAIN} while the program splices, so that splices are counted from the first segment on",
    ),
    ("loss: ", f"{AGAIN}; if events are lost again, {REPORT}"),
    ("ended too early: ", "watch a program that runs longer, or have copyscope start it: watch -- COMMAND"),
    ("too short a command: ", f"{AGAIN} with --whole, which counts all of a short command"),
    ("too short: ", f"{AGAIN}, longer"),
    ("nothing was sent", "watch the program while it is sending or receiving (--live shows when)"),
    ("hook ", "run copyscope doctor, which lists what this kernel allows"),
)
# Maximum measuring time in s of a program that counts as having ended while the hooks were attached.
ATTACHED_S_MAX = 0.05
# Instrument -> advice on the next step if a hook of the instrument was skipped or did not fire.
STEPS_BY_INSTRUMENT = {"calls": NO_CALLS, "functions": FEWER_FUNCTIONS, "sampler": LESS_SAMPLING}
# Advice on the next step for all other reasons.
DEFAULT_STEP = f"fix what the first reason names, and {AGAIN}"
# Beginnings of reasons that a busy machine can cause, because clocks and samples disagree. Counts are not
# affected.
CAUSED_BY_BUSY_MACHINE = (
    *(f"identity {side}_time:" for side in SIDES),
    *("identity within_cpus:", "identity gather_fits:", "loss: samples_"),
)
# Our own traffic: hook -> check that compares the hook's bytes with the program's bytes.
OWN_CHECK_OF_HOOK = {
    "send_bytes": "sent_bytes",
    "receive_bytes": "received_bytes",
    "copy_out_bytes": "received_split",
}
# Watched program: hook -> check that compares the hook's count with a second count of the same events.
TARGET_CHECK_OF_HOOK = {
    **dict.fromkeys(("volume_sent", "volume_sent_at_exit"), "connection_sent_bytes"),
    **dict.fromkeys(
        ("volume_received", "volume_spliced", "splices_before_their_hook"), "connection_received_bytes"
    ),
    "volume_copied_out": "received_split",
}
# Checks that compare return values of system calls with the socket layer's count.
CALL_CHECKS = ("call_sent_bytes", "call_received_bytes")
# Hooks whose missed calls change no number: a closed socket stays in the map until the socket is destroyed,
# splicing is noticed at the next call, and every other hook here contributes only to averages.
WITHOUT_EFFECT = ("socket_closed", "socket_destroyed", "splice_seen", "packet", "shape", "round", "round_end")


def find_verdict(
    raw: Measured,
    checks: Sequence[Identity],
    losses: Mapping[str, Loss],
    disturbance: str | None,
    *,
    finding: str,
    limit: Limit,
) -> Verdict:
    """Return the verdict. For an invalid run, its text begins with the reason.

    disturbance: the kind of disturbance, as in the section `machine_state`
    finding: the main finding in one sentence
    limit: what limited goodput
    """
    reasons = [*why_interrupted(raw), *why_invalid(raw, checks, losses)]
    # Hooks that an instrument of this run needs and that did not attach.
    missing = (hook for hook in absent_hooks(raw.hooks) if uses_instrument(raw.run, hook.instrument))
    reasons += [f"hook {hook.id}: {why_absent(hook)}" for hook in missing]
    sentence = finding
    if raw.run.interrupted and len(reasons) == 1:
        sentence = f"{reasons[0]}; {finding}"
    elif reasons:
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        sentence = f"not valid: {reasons[0]}{more}; do not quote this run. {finding}"
    step = next_step(reasons, disturbance, duration_s(raw), raw.hooks)
    return Verdict(valid=not reasons, reasons=reasons, sentence=sentence, limit=limit, next=step)


def why_invalid(raw: Measured, checks: Sequence[Identity], losses: Mapping[str, Loss]) -> list[str]:
    """Return the reasons why a run is invalid: broken checks, heavy losses, errors, too little time."""
    broken = [f"identity {check.name}: {_disagreement(check)}" for check in checks if check.holds is False]
    if raw.target is not None:
        lost = heavy_losses(losses, complete_target_hooks(raw, checks))
        unmeasured = why_ended_early(raw) or [*why_silent(raw), *why_target_too_short(raw)]
        return [*unmeasured, *broken, *lost]
    lost = heavy_losses(losses, complete_own_hooks(raw, checks))
    return [*broken, *lost, *traffic_errors(raw.reports), *why_own_too_short(raw)]


def _disagreement(check: Identity) -> str:
    """Return a broken check as text, with the two numbers that disagree."""
    if not check.name.endswith("_time") or check.unit != "ns":
        return f"{check.what}: {check.left:,} is not {check.right:,} {check.unit}"
    sampled, clock = spelling.format_ns(check.left), spelling.format_ns(check.right)
    return f"samples stand for {sampled} of CPU time, the kernel's clock says {clock}: not usable"


def why_interrupted(raw: Measured) -> list[str]:
    """Return what went wrong with the run itself: an interruption, and errors such as a program that died."""
    if not raw.run.interrupted:
        return [f"run: {error}" for error in raw.run.errors]
    planned_s = duration_s(raw)
    of_planned = "" if planned_s is None else f" of {planned_s:g}"
    errors = [f"run: {error}" for error in raw.run.errors if not error.startswith("interrupted")]
    return [f"interrupted: {raw.run.measured_s:.1f}{of_planned} s measured", *errors]


def heavy_losses(losses: Mapping[str, Loss], complete_hooks: Collection[str] = ()) -> list[str]:
    """Return a reason for each loss that is above its limit or a part of an unknown total.

    complete_hooks: hooks whose misses are harmless
    """
    heavy = []
    for name, loss in losses.items():
        if not loss.count or name.removeprefix("recursion_") in complete_hooks:
            continue
        is_samples = name.startswith("samples_")
        largest = LOSS_SHARE_MAX_BY_NAME.get(name, LOST_SAMPLES_SHARE_MAX if is_samples else LOSS_SHARE_MAX)
        if loss.share is None:
            heavy.append(f"loss: {name}: {loss.count:,} of an unknown number")
        elif loss.share > largest and not (is_samples and loss.count == 1):
            heavy.append(f"loss: {name}: {loss.count:,} of {loss.of:,}: more than {largest * 100:g} %")
    return heavy


def complete_own_hooks(raw: Measured, checks: Sequence[Identity]) -> list[str]:
    """Return the hooks that certainly missed nothing of our own traffic.

    The kernel counts the misses of a hook for all programs together, so a miss may belong to another program.
    For some hooks our programs count the same bytes. For hooks that time calls, our programs count the calls,
    too: agreement proves that only known misses occurred.
    """
    exact = {check.name for check in checks if check.holds and check.left == check.right}
    hooks = [hook for hook, check_name in OWN_CHECK_OF_HOOK.items() if check_name in exact]
    if any(check.name == "timed_calls" and check.holds for check in checks):
        hooks += [hook.id for hook in raw.hooks if hook.instrument == "calls"]
    return hooks


def complete_target_hooks(raw: Measured, checks: Sequence[Identity]) -> list[str]:
    """Return the hooks whose missed calls are harmless: they change no number, or another count confirms it.

    The kernel counts misses of all programs on the machine together.
    """
    proven = {check.name for check in checks if is_proof(check)}
    broken = {check.name for check in checks if check.holds is False}
    hooks = [hook for hook, check_name in TARGET_CHECK_OF_HOOK.items() if check_name in proven]
    if proven.intersection(CALL_CHECKS) and not broken.intersection(CALL_CHECKS):
        hooks += [hook.id for hook in raw.hooks if hook.instrument == "calls"]
    if not any(row.zerocopy_calls for row in raw.volume):
        hooks.append("completion")
    if not any(row.syscall == "io_uring" for row in raw.volume):
        hooks.append("uring_complete")
    return [*WITHOUT_EFFECT, *hooks]


def is_proof(check: Identity) -> bool:
    """Return True if the two counts of a check agree so closely that neither can lack anything important."""
    if not check.holds or not check.left or not check.right:
        return False
    return abs(check.left - check.right) + check.tolerance <= PROVEN_SHARE * check.right


def why_ended_early(raw: Measured) -> list[str]:
    """Return a reason if the program ended while copyscope attached its hooks, or [] otherwise."""
    target = raw.watched
    if target.ended != "the program ended" or raw.run.measured_s > ATTACHED_S_MAX:
        return []
    measured_for = f"after {raw.run.measured_s:.2f} s of measuring"
    return [f"ended too early: {target.program} ended while copyscope attached, {measured_for}"]


def why_silent(raw: Measured) -> list[str]:
    """Return a reason if the watched program moved no bytes, or [] otherwise.

    Traffic through a tun device is not counted. Only samples show such traffic.
    """
    moved = any(row.bytes for row in raw.volume if row.protocol != FILE_PROTOCOL)
    if moved or any(row.category == "tun" for row in raw.samples):
        return []
    return [
        f"nothing was sent or received over TCP, MPTCP, UDP or UNIX sockets by {raw.watched.program} in "
        f"{raw.run.measured_s:.1f} s"
    ]


def traffic_errors(traffic: Traffic) -> list[str]:
    """Return the problems that our programs reported: errors, wrong payload, sends that never completed."""
    reports = {"sender": traffic.sender, "receiver": traffic.receiver}
    errors = [f"{side}: {error}" for side, report in reports.items() for error in report.errors]
    verify = traffic.receiver.verify
    if verify is not None and verify.wrong_bytes:
        errors.append(
            f"receiver: {verify.wrong_bytes:,} wrong bytes of {verify.checked_bytes:,} checked, "
            f"the first at offset {verify.first_wrong_offset}"
        )
    if traffic.sender.zerocopy and (in_flight := traffic.sender.zerocopy.in_flight):
        errors.append(f"sender: {in_flight:,} zero-copy sends were never completed: the run ended first")
    return errors


def why_own_too_short(raw: Measured) -> list[str]:
    """Return a reason if our own traffic ended before its data left the socket buffers, or [] otherwise."""
    reason = raw.reports.sender.too_short_reason
    # The control strategy sends nothing, however long it runs.
    if reason and bytes_sent(measured(raw.run.segments)):
        return [f"too short: {reason}"]
    return why_too_short(raw.run.segments, "too short", "so that data leaves the socket buffers")


def why_target_too_short(raw: Measured) -> list[str]:
    """Return a reason if a watch was too short to count everything that moved, or [] otherwise."""
    if ended_inside_segment(raw.run) or counted_whole(raw):
        return []
    opening = "too short a command" if raw.watched.how == "command" else "too short"
    return why_too_short(raw.run.segments, opening, "to measure what copies cost")


def why_too_short(segments: Sequence[Segment], opening: str, purpose: str) -> list[str]:
    """Return a reason if the instruments ran for less than SHORTEST_LEDGER_NS, or [] otherwise.

    For a run without the ledger's instruments (--instruments calls), the time of all its instruments counts.

    opening: beginning of the reason
    purpose: what the missing time is needed for
    """
    probed = select(segments, "ledger") or [s for s in measured(segments) if s.phase != "unprobed"]
    elapsed_ns = wall_ns(probed)
    if elapsed_ns >= SHORTEST_LEDGER_NS:
        return []
    return [
        f"{opening}: {elapsed_ns / 1e6:.1f} ms with instruments, at least "
        f"{SHORTEST_LEDGER_NS // 1_000_000} ms are needed {purpose}"
    ]


def next_step(
    reasons: Sequence[str], disturbance: str | None, duration_s: float | None, hooks: Iterable[Hook] = ()
) -> str:
    """Return the advice for an invalid run, which depends on its first reason, or "" if valid.

    disturbance: the kind of disturbance, as in the section `machine_state`
    duration_s: planned duration
    hooks: hooks of the run
    """
    if not reasons:
        return ""
    reason = reasons[0]
    if disturbance in OPENINGS and reason.startswith(CAUSED_BY_BUSY_MACHINE):
        return f"{OPENINGS[disturbance]}: {repeat_advice(duration_s, busy=True)}"
    if (skipped := re.match(r"loss: (?:recursion|missed)_(\w+)", reason)) is not None:
        hook = find_hook(hooks, skipped[1])
        if hook is not None and hook.instrument in STEPS_BY_INSTRUMENT:
            return STEPS_BY_INSTRUMENT[hook.instrument]
    return next((step for opening, step in STEPS if reason.startswith(opening)), DEFAULT_STEP)


# Limits of goodput: the CPU of a side, the other end, or the path between both ends.
#
# A side cannot go faster if its threads hardly ever left the CPU. Otherwise TCP_INFO shows why the sender
# waited: it has the busy time, and the parts of that time limited by the peer's window or by the send buffer.

# Fraction (0..1) of the time on CPU above which a side is assumed to be unable to go faster.
SATURATED_SHARE = 0.90
# Fraction (0..1) of the busy time above which a cause of waiting counts as the limit of goodput.
MAJORITY_SHARE = 0.50
# Fields of tcp_info: time with data to send, and the parts of that time spent waiting for the peer's window
# and for room in the send buffer.
TCP_TIMES = ("busy_time_us", "rwnd_limited_us", "sndbuf_limited_us")


def find_limit(raw: Measured, sides: Sides) -> Limit:
    """Return what limited goodput (sender, receiver, path, target, peer or unknown) with the evidence."""
    return _own_limit(raw) if sides.target is None else _target_limit(raw, sides.target.cpus_used)


def _own_limit(raw: Measured) -> Limit:
    """Return the limit of our own traffic."""
    busy = {side: on_cpu_share(raw, side) for side in PROCESSES}
    known_busy = {side: share for side, share in busy.items() if share is not None}
    shares = ", ".join(f"{side} {share * 100:.0f} %" for side, share in known_busy.items())
    on_cpu = f"threads on CPU: {shares}" if shares else "no segment ran with the ledger's instruments"
    saturated = {side: share for side, share in known_busy.items() if share >= SATURATED_SHARE}
    if saturated:
        return _limit(max(saturated, key=lambda side: saturated[side]), on_cpu)
    spent_ns = {side: cpu_time(raw, side).ns for side in PROCESSES}
    cpus = raw.machine.cpus_online
    capacity_ns = wall_ns(select(raw.run.segments, "ledger")) * cpus
    used_share = sum(spent_ns.values()) / capacity_ns if capacity_ns > 0 and len(machines(raw)) == 1 else 0.0
    if used_share >= SATURATED_SHARE:
        side = max(PROCESSES, key=lambda side: spent_ns[side])
        crowded = f"all {cpus} CPUs were {used_share * 100:.0f} % busy with both sides, most of it the {side}"
        return _limit(side, on_cpu, crowded)
    infos = [thread.tcp_info or {} for thread in raw.reports.sender.threads]
    times_us = [[info.get(key) for info in infos] for key in TCP_TIMES]
    sums_us = [sum(us for us in connections if us is not None) for connections in times_us]
    if None in chain(*times_us) or not sums_us[0]:
        return _limit("unknown", on_cpu, "the sender's connections reported no busy time")
    who, waited = waited_for(sums_us, "receiver")
    no_cause = "most of the time has no single cause"
    return _limit(who, on_cpu, f"{waited}: {no_cause}" if who == "unknown" else waited)


def _target_limit(raw: Measured, cpus_used: float | None) -> Limit:
    """Return the limit of a watched program.

    cpus_used: CPU time of the program over wall time; None if unknown
    """
    on_cpu = "CPU time not known" if cpus_used is None else f"on CPU {cpus_used * 100:.0f} % of the time"
    threads = max((s.target.threads for s in raw.run.segments), default=1)
    if cpus_used is not None and threads == 1 and cpus_used >= SATURATED_SHARE:
        return _limit("target", f"{on_cpu}, with one thread")
    machine_cpus = raw.machine.cpus_online
    if cpus_used is not None and cpus_used >= SATURATED_SHARE * machine_cpus:
        return _limit("target", f"{on_cpu}, of {machine_cpus} CPUs")
    times_ms = [
        added(raw.connections, lambda row: row.busy_ms),
        added(raw.connections, lambda row: row.rwnd_limited_ms),
        added(raw.connections, lambda row: row.sndbuf_limited_ms),
    ]
    if not times_ms[0]:
        return _limit("unknown", on_cpu, "no long-lived connection was busy sending")
    who, waited = waited_for(times_ms, "peer")
    return _limit(who, on_cpu, waited)


def _limit(who: str, *evidence: str) -> Limit:
    """Return a limit of goodput.

    who: name of the limit, such as `sender` or `path`
    evidence: observations, the decisive observation last
    """
    return Limit(who, "; ".join(evidence), evidence[-1])


def waited_for(times: Sequence[int], other_end: str) -> tuple[str, str]:
    """Return the limit that connections waited for during most of their busy time, and the evidence.

    times: busy time, time limited by the peer's window, and time limited by the send buffer, in any unit
    other_end: name of the end that the window belongs to
    """
    busy, window, buffer = times
    evidence = (
        f"connections waited {window / busy * 100:.0f} % of their busy time for the {other_end}'s window, "
        f"{buffer / busy * 100:.0f} % for the send buffer"
    )
    if window >= MAJORITY_SHARE * busy:
        return other_end, evidence
    return "path" if buffer >= MAJORITY_SHARE * busy else "unknown", evidence


def on_cpu_share(raw: Measured, side: str) -> float | None:
    """Return the CPU time of a side over the wall time of its threads in the ledger segments (0..1)."""
    threads_ns = wall_ns(select(raw.run.segments, "ledger")) * worker_threads(raw.asked, side)
    return cpu_time(raw, side).ns / threads_ns if threads_ns > 0 else None


def worker_threads(workload: Workload, side: str) -> int:
    """Return the number of working threads of a side: one per connection, or one for all."""
    is_single = workload.sender == "loop" if side == "sender" else workload.receiver == "poll"
    return 1 if is_single else workload.threads
