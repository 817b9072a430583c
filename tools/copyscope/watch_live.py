"""The last seconds of a run that goes on, as a derived record: the live view shows the same ledger. Pure."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from copyscope import watch_ledger
from copyscope.assemble import Identity
from copyscope.watch_assemble import assemble

Record = dict[str, Any]

WINDOW_BLOCKS = 4
SAMPLE_KEY = ("side", "context", "event", "kind", "category", "symbol", "tie")


class Window:
    """Remembers what was sampled before the window; record() makes the record of what happened since."""

    def __init__(self, workload: Record, target: Record, frequency_hz: int) -> None:
        self._workload = workload
        self._target = target
        self._frequency_hz = frequency_hz
        self._identity = Identity("live", None, 0, 0, 0, None, None)
        self._history: list[tuple[int, list[Record]]] = []

    def record(self, seen: Any, answer: Record) -> Record:
        """`seen` is what watch/conductor.py has so far, `answer` the collector's to the command `samples`."""
        last_block = seen.segments[-1]["block"]
        first_block = max(0, last_block - WINDOW_BLOCKS + 1)
        recent = SimpleNamespace(
            **{
                **vars(seen),
                "segments": [s for s in seen.segments if s["block"] >= first_block],
                "sums": {},
                "collector": answer,
                "counters": {},
            }
        )
        raw = assemble(recent, self._workload, self._target, self._identity, self._frequency_hz)
        older = [rows for block, rows in self._history if block < first_block]
        self._history = [row for row in self._history if row[0] >= first_block - 1]
        self._history.append((last_block, raw["samples"]))
        raw["samples"] = subtract_samples(raw["samples"], older[-1] if older else [])
        return watch_ledger.derive(raw, effects=False)


def subtract_samples(now: list[Record], before: list[Record]) -> list[Record]:
    """Samples that came since, row by row."""
    earlier = {tuple(row[k] for k in SAMPLE_KEY): row for row in before}
    rows = []
    for row in now:
        old = earlier.get(tuple(row[k] for k in SAMPLE_KEY), {"samples": 0, "weight": 0})
        samples = row["samples"] - old["samples"]
        if samples > 0:
            rows.append({**row, "samples": samples, "weight": max(0, row["weight"] - old["weight"])})
    return rows
