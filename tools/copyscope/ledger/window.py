"""The last seconds of a run that goes on, as a derived record: the live view shows the same ledger. Pure."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from copyscope.ledger.derive import derive
from copyscope.record.assemble import Identity, assemble
from copyscope.record.connections import Connections
from copyscope.record.session_result import Raw
from copyscope.taxonomy.samples import SUMS

Record = dict[str, Any]

WINDOW_BLOCKS = 4
# More than so many blocks have.
SEGMENTS_MAX = 8 * WINDOW_BLOCKS
SAMPLE_KEY = ("side", "context", "event", "kind", "category", "symbol", "tie")


class Window:
    """Remembers what was sampled in its blocks; record() makes the record of what happened in them."""

    def __init__(self, target: Record, frequency_hz: int, *, in_turn: bool = False) -> None:
        """`in_turn`: a record begins where the one before it ended."""
        self._in_turn = in_turn
        self._told = 0
        self._target = target
        self._frequency_hz = frequency_hz
        self._identity = Identity("live", None, 0, 0, 0, None, None)
        self._history: list[tuple[int, list[Record]]] = []
        self._loads: list[tuple[int, Record]] = []

    def add_load(self, block: int, load: Record) -> None:
        """What the machine had done when a segment of this block was over (machine.read_load())."""
        ends = [one for one in self._loads if one[0] != block]
        self._loads = [*ends[-WINDOW_BLOCKS:], (block, load)]

    def record(self, seen: Raw, answer: Record) -> Record:
        """`seen` is what the run has so far, `answer` what the collector has sampled since."""
        last_block = seen.segments[-1]["block"]
        first_block = max(0, last_block - WINDOW_BLOCKS + 1)
        segments = [s for s in seen.segments[-SEGMENTS_MAX:] if s["block"] >= first_block]
        if self._in_turn:
            segments, self._told = seen.segments[self._told :], len(seen.segments)
        recent = replace(
            seen,
            segments=segments,
            sums={},
            loads=self._loads_of(first_block, seen.loads),
            collector=answer,
            # Of thousands nobody sees one on the screen: rows of them took longer than all the rest.
            connections=Connections(),
            counters={},
        )
        raw = assemble(recent, self._identity, self._frequency_hz, target=self._target)
        self._history = [one for one in self._history if one[0] >= first_block] * (not self._in_turn)
        self._history.append((last_block, raw["samples"]))
        raw["samples"] = add_samples(rows for _, rows in self._history)
        return derive(raw, effects=False)

    def forget(self, seen: Raw) -> None:
        """Nobody wants a report of what was told; but the last segment says where the next one begins."""
        del seen.segments[:-1]
        seen.sums.clear()
        seen.connections = Connections()
        self._told = len(seen.segments)

    def _loads_of(self, first_block: int, begin: list[Record]) -> list[Record]:
        """Both ends of the window: that of the block before it, or the beginning of the run, and now."""
        before = [*begin[:1], *(load for block, load in self._loads if block < first_block)]
        return [*before[-1:], *(load for _, load in self._loads[-1:])]


def add_samples(parts: Iterable[list[Record]]) -> list[Record]:
    """What several answers have sampled, row by row."""
    sums: dict[tuple[Any, ...], Record] = {}
    for row in (row for rows in parts for row in rows):
        into = sums.setdefault(tuple(row[k] for k in SAMPLE_KEY), {})
        if not into:
            into.update(row)
            continue
        for name in SUMS:
            into[name] += row[name]
    return list(sums.values())
