"""What to do after a run that is not valid, by its first reason. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from copyscope.ledger.machine_state import remedy

AGAIN = "run it once more"
# How a reason begins (verdict.py) -> what to do. Some reasons say it themselves.
STEPS = (
    ("interrupted", f"{AGAIN}, to its end"),
    ("run: interrupted", f"{AGAIN}, to its end"),
    ("identity ", f"{AGAIN}; if the same two disagree again, keep the run with --json FILE and report it"),
    ("loss: ", f"{AGAIN} with fewer instruments (--instruments counters,sampler) or a larger --gate"),
    ("too short: ", f"{AGAIN}, longer"),
    ("nothing was sent", "watch the process that sends or receives, while it does (--live shows when)"),
    ("hook ", "tools/doctor.py says what this kernel allows"),
)
OTHERWISE = f"mend what the first reason names, and {AGAIN}"


def next_step(reasons: Sequence[str], busy: str | None, duration_s: float | None) -> str:
    """One sentence; empty for a run that nothing is held against. A busy machine is the first suspect.

    busy: the sentence of `machine_state`.
    """
    if not reasons:
        return ""
    # A run that the user stopped, or of a program that sends nothing, does not get better on a quiet machine.
    if busy and reasons[0].startswith(("identity ", "loss: ", "too short")):
        return f"{busy.split(':')[0]}: {remedy(duration_s, busy=True)}"
    return next((step for start, step in STEPS if reasons[0].startswith(start)), OTHERWISE)
