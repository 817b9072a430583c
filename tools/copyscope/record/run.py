# SPDX-License-Identifier: GPL-2.0-only
"""Combine the measured and the derived part of a run in one value. Pure."""

from dataclasses import dataclass

from copyscope.record.derived import Derived, Judged, SimulatedRun
from copyscope.record.measured import Measured, RunIdentity
from copyscope.record.portrait import Portrait

__all__ = ["CompleteRun", "Run", "SimulatedRun", "Stored", "run_section", "verdict_of"]


@dataclass(frozen=True)
class Run:
    """Run of our own traffic or of a watched process, for screens, exports and comparisons."""

    raw: Measured
    derived: Derived

    @property
    def is_partial(self) -> bool:
        """True if the only fault of the run is that the user stopped it, so that its numbers are valid."""
        return self.raw.run.interrupted and len(self.derived.verdict.reasons) == 1

    @property
    def portrait(self) -> Portrait:
        """Traffic of a watched process. Raises LookupError for our own traffic."""
        if self.derived.portrait is None:
            raise LookupError("copyscope's own traffic")
        return self.derived.portrait


CompleteRun = Run | SimulatedRun
# Content of a record on disk. If the record has no derived part, that part is computed after reading.
Stored = CompleteRun | Measured


def run_section(run: CompleteRun) -> RunIdentity:
    """Return the identification (section `run`) of a run."""
    return run.raw.run if isinstance(run, Run) else run.run


def verdict_of(run: CompleteRun) -> Judged:
    """Return the validity of a run."""
    return run.derived.verdict if isinstance(run, Run) else run.verdict
