"""May this run be believed, and what does it say: validity with reasons, and one sentence for people."""

from collections.abc import Collection, Mapping, Sequence

from copyscope.ledger.machine_state import remedy
from copyscope.record.derived import Identity, Limit, Loss, Verdict
from copyscope.record.hooks import absent, why_absent
from copyscope.record.program.raw import RawProgramRun
from copyscope.record.raw import RawRun, RunBase, SegmentBase
from copyscope.record.segments import (
    SHORTEST_LEDGER_NS,
    counted_whole,
    cut_short,
    measured,
    select,
    total,
    used,
    wall_ns,
)
from copyscope.record.traffic import Traffic

MOST_LOSS_SHARE = 0.001
AGAIN = "run it once more"
# How a reason begins -> what to do. Some reasons say it themselves.
STEPS = (
    ("interrupted", f"{AGAIN}, to its end"),
    ("run: interrupted", f"{AGAIN}, to its end"),
    ("identity ", f"{AGAIN}; if the same two disagree again, keep the run with --json FILE and report it"),
    ("loss: ", f"{AGAIN} with fewer instruments (--instruments counters,sampler) or a larger --gate"),
    ("too short: ", f"{AGAIN}, longer"),
    ("nothing was sent", "watch the process that sends or receives, while it does (--live shows when)"),
    ("hook ", "copyscope doctor says what this kernel allows"),
)
OTHERWISE = f"mend what the first reason names, and {AGAIN}"
# Of own traffic: the check that compares a hook's bytes with those of the program.
COUNTED_TWICE = {
    "send_bytes": "sent_bytes",
    "receive_bytes": "received_bytes",
    "copy_out_bytes": "received_split",
}


def find_verdict(
    raw: RawRun | RawProgramRun,
    identities: Sequence[Identity],
    loss: Mapping[str, Loss],
    busy: str | None,
    finding: tuple[str, Limit],
) -> Verdict:
    """The verdict; a run with a reason against it says so before anything else.

    busy: the sentence of `machine_state`. finding: one sentence, and who was the limit.
    """
    sentence, limit = finding
    found = broken_identities(identities)
    if isinstance(raw, RawProgramRun):
        found = silence(raw) + found + heavy_losses(loss) + too_short_beside(raw)
    else:
        found += (
            heavy_losses(loss, complete_hooks(raw, identities)) + of_traffic(raw.traffic) + too_short(raw)
        )
    # Hooks that an instrument of this run cannot do without and that did not attach.
    missing = (hook for hook in absent(raw.hooks) if used(raw.run, hook.instrument))
    reasons = interrupted(raw.run) + found + [f"hook {hook.id}: {why_absent(hook)}" for hook in missing]
    if reasons:
        more = f" (and {len(reasons) - 1} more)" if len(reasons) > 1 else ""
        sentence = f"not valid: {reasons[0]}{more}; do not quote this run. {sentence}"
    step = next_step(reasons, busy, raw.workload.duration_s)
    return Verdict(valid=not reasons, reasons=reasons, sentence=sentence, limit=limit, next=step)


def interrupted(run: RunBase) -> list[str]:
    """What went wrong with the run itself, in its own words: a program that died, an interruption."""
    errors = [f"run: {error}" for error in run.errors]
    if run.interrupted and not any("interrupted" in error for error in errors):
        return ["interrupted before its end", *errors]
    return errors


def broken_identities(identities: Sequence[Identity]) -> list[str]:
    """Each identity that was checked and does not hold."""
    return [
        f"identity {i.name}: {i.what}: {i.left:,} is not {i.right:,} {i.unit}"
        for i in identities
        if i.holds is False
    ]


def heavy_losses(losses: Mapping[str, Loss], complete: Collection[str] = ()) -> list[str]:
    """What the instruments lost beyond 0.1 %, or of an unknown whole; not what `complete` hooks missed."""
    found = []
    for name, loss in losses.items():
        if name.removeprefix("recursion_") in complete:
            continue
        if loss.share is None and loss.count:
            found.append(f"loss: {name}: {loss.count:,} of an unknown number")
        elif loss.share is not None and loss.share > MOST_LOSS_SHARE:
            found.append(f"loss: {name}: {loss.count:,} of {loss.of:,}: more than 0.1 %")
    return found


def complete_hooks(raw: RawRun, identities: Sequence[Identity]) -> list[str]:
    """Hooks whose misses spoil no sum of the run: the kernel counts those of all programs together.

    Of some our programs' own counts say that nothing of the run is missing. Others time calls, and our
    programs say how many they made: no more than the known misses are left out.
    """
    exact = {row.name for row in identities if row.holds and row.left == row.right}
    found = [hook for hook, check in COUNTED_TWICE.items() if check in exact]
    if any(row.name == "timed_calls" and row.holds for row in identities):
        found += [hook.id for hook in raw.hooks if hook.instrument == "calls"]
    return found


def silence(raw: RawProgramRun) -> list[str]:
    """A program that moved nothing has no ledger."""
    if any(row.bytes for row in raw.volume):
        return []
    return [
        f"nothing was sent or received over TCP, MPTCP, UDP or UNIX sockets by {raw.target.name} in "
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
        found.append(f"sender: {left:,} zero-copy sends were never completed: the run ended undrained")
    return found


def too_short(raw: RawRun) -> list[str]:
    """No time with instruments, or too little to leave the socket buffers."""
    reported = raw.traffic.sender.too_short_reason
    # the control strategy sends nothing, however long it runs
    if reported and total(measured(raw.run.segments), "sender", "bytes"):
        return [f"too short: {reported}"]
    return below_the_shortest(raw.run.segments, "to leave the socket buffers")


def too_short_beside(raw: RawProgramRun) -> list[str]:
    """The same of a program, unless all that it moved was counted."""
    if cut_short(raw.run) or counted_whole(raw):
        return []
    ways = ", or count all of it with --whole" if raw.target.how == "command" else ""
    return below_the_shortest(raw.run.segments, f"for a ledger: let the program run longer{ways}")


def below_the_shortest(segments: Sequence[SegmentBase], why: str) -> list[str]:
    """A run without the ledger's instruments (--instruments calls) is judged by those that it has."""
    probed = select(segments, "ledger") or [s for s in measured(segments) if s.arm != "unprobed"]
    elapsed_ns = wall_ns(probed)
    if elapsed_ns >= SHORTEST_LEDGER_NS:
        return []
    return [
        f"too short: {elapsed_ns / 1e6:.1f} ms with instruments, at least "
        f"{SHORTEST_LEDGER_NS // 1_000_000} ms are needed {why}"
    ]


def next_step(reasons: Sequence[str], busy: str | None, duration_s: float | None) -> str:
    """What to do after a run that is not valid, by its first reason; a busy machine is the first suspect.

    Empty for a run that nothing is held against. busy: the sentence of `machine_state`.
    """
    if not reasons:
        return ""
    # A run that the user stopped, or of a program that sends nothing, does not get better on a quiet machine.
    if busy and reasons[0].startswith(("identity ", "loss: ", "too short")):
        return f"{busy.split(':')[0]}: {remedy(duration_s, busy=True)}"
    return next((step for start, step in STEPS if reasons[0].startswith(start)), OTHERWISE)
