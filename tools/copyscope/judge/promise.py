# SPDX-License-Identifier: GPL-2.0-only
"""A saving that `advise` promised before a change, compared with the measured saving. Pure."""

from collections.abc import Sequence

from msgspec import Struct

from copyscope.judge.bounds import saving_words
from copyscope.judge.difference import CPU_ROW, DifferenceRow
from copyscope.record.portrait import Advice
from copyscope.record.run import Run


class Promise(Struct, frozen=True):
    """The saving of a remedy, as shares (0..1) of the CPU time per byte before the change.

    remedy, how: name of the remedy, and the setting or call that makes the change
    least_share, most_share: bounds that `advise` promised
    likely_share: saving that it called likely, between the bounds; None if unknown
    change, low, high: measured change with its interval, negative for a saving; single runs give no interval
    """

    remedy: str
    how: str
    least_share: float
    likely_share: float | None
    most_share: float
    change: float
    low: float | None
    high: float | None

    def sentence(self) -> str:
        """Return the promised and the measured saving in words."""
        promised = saving_words(self.least_share, self.most_share, self.likely_share)
        measured = f"{abs(self.change) * 100:.0f} % {'less' if self.change <= 0 else 'more'}"
        if self.low is not None and self.high is not None and self.low != self.high:
            ends = (-self.high, -self.low) if self.change <= 0 else (self.low, self.high)
            measured += f" ({ends[0] * 100:.0f} to {ends[1] * 100:.0f})"
        return f"promised for {self.how}: {promised} less CPU time per byte; measured: {measured}"


def promise_of(before: Sequence[Run], after: Sequence[Run], rows: Sequence[DifferenceRow]) -> Promise | None:
    """Return the promise of the remedy that was applied, or of the remedy with the largest saving.

    Return None if the records before the change have no advice, or if the CPU time is unknown.

    rows: all rows of the difference between the two groups of runs
    """
    row = next((row for row in rows if row.what == CPU_ROW and row.change is not None), None)
    advice = _newest_advice(before)
    if row is None or row.change is None or advice is None:
        return None
    later = _newest_advice(after)
    in_use = {remedy.name for remedy in (later.remedies or () if later else ()) if remedy.answer == "yes"}
    promised = [
        (remedy.name in in_use, remedy.saves.most_share, remedy.name, remedy.how, remedy.saves)
        for remedy in advice.remedies or ()
        if remedy.answer in ("yes", "maybe") and remedy.saves is not None and remedy.how is not None
    ]
    if not promised:
        return None
    *_, name, how, saves = max(promised, key=lambda promise: promise[:2])
    promised_shares = (saves.least_share, saves.likely_share, saves.most_share)
    return Promise(name, how, *promised_shares, row.change, row.low, row.high)


def _newest_advice(runs: Sequence[Run]) -> Advice | None:
    advised = [run for run in runs if run.derived.advice is not None]
    newest = max(advised, key=lambda run: run.raw.run.started, default=None)
    return None if newest is None else newest.derived.advice
