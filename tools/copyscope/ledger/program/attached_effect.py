"""What it costs a running program to be watched at all: goodput while attached over goodput without.

The arms of a run share the hooks that count bytes, and our own work between the segments: neither is in the
effect of an arm. Here the control is the time before the first hook came and after the last had gone, by
TCP's own counts. Pure.
"""

from collections.abc import Mapping, Sequence

from copyscope import stats
from copyscope.ledger.overhead import UNKNOWN, loss_of
from copyscope.record.program.derived import Attached
from copyscope.record.program.raw import Pace, PaceSlice, RawProgramRun, Target, Volume
from copyscope.record.program.volume import TAKEN, added

FEWEST_SLICES = 3
# The share of its bytes that must have gone over connections that lasted: or the counts are not of the same.
COVERED = 0.95


def without_empty(rows: Sequence[PaceSlice]) -> list[PaceSlice]:
    """In an interval without CPU time a program moved nothing: that time belongs to a neighbour."""
    made: list[PaceSlice] = []
    for row in rows:
        if made and min(row.bytes, made[-1].bytes) <= 0:
            last = made.pop()
            made.append(PaceSlice(row.when, last.begin_ns, row.end_ns, last.bytes + row.bytes))
        else:
            made.append(row)
    return made


def attached_effect(raw: RawProgramRun) -> Attached:
    """The section `overhead.attached`: null with its reason where nothing can be compared."""
    pace = raw.pace
    slices = {when: [r for r in pace.slices if r.when == when] for when in ("before", "attached", "after")}
    elapsed_ns = sum(row.end_ns - row.begin_ns for row in slices["attached"])
    reason = why_unknown(raw.target, raw.volume, pace, slices)
    found = UNKNOWN
    if reason is None:
        rates = {
            when: [row.bytes / (row.end_ns - row.begin_ns) for row in without_empty(rows)]
            for when, rows in slices.items()
        }
        ratio = stats.unpaired_ratio(rates["attached"], rates["before"] + rates["after"])
        assert ratio.interval is not None  # one slice before and one after, at least
        found = loss_of(ratio.value, ratio.interval)
    return Attached(
        reason=reason,
        slices={when: len(rows) for when, rows in slices.items()},
        own_cpu_share=pace.own_cpu_ns / elapsed_ns if pace.own_cpu_ns is not None and elapsed_ns else None,
        **found,
    )


def why_unknown(
    target: Target, moved: Sequence[Volume], pace: Pace, slices: Mapping[str, Sequence[PaceSlice]]
) -> str | None:
    """Why the two cannot be compared, the first reason that holds; None when they can."""
    covered, blocks = pace.covered_share, len(slices["attached"])
    reasons = (
        (target.how == "command", "it was started by this run: there is no time without instruments"),
        (target.baseline is False, "--no-baseline"),
        (not slices["before"], "it was not there, or TCP could not be asked, before the first hook came"),
        (not slices["after"], "it had ended, or TCP could not be asked, when the last hook had gone"),
        (
            covered is None,
            "no TCP connection that was still open at the end had moved bytes; TCP alone counts them when no"
            " hook does",
        ),
        (
            any(row.syscall in TAKEN for row in moved),
            "bytes taken by splice(2) or mapped are not counted everywhere",
        ),
        (
            covered is not None and covered < COVERED,
            f"{(covered or 0) * 100:.0f} % of its bytes went over connections that lasted the whole run, and "
            f"{COVERED * 100:.0f} % would have to",
        ),
        (blocks < FEWEST_SLICES, f"{blocks} blocks of segments, and {FEWEST_SLICES} are needed: run longer"),
        (
            any(added(rows, "bytes") <= 0 for rows in slices.values()),
            "it moved nothing before, meanwhile or after: its own pauses would be taken for ours",
        ),
    )
    return next((reason for holds, reason in reasons if holds), None)
