"""What a client of timeline.c saw of a watch, by the segments of its record. Pure.

The host of a virtual machine changes its pace by a third within seconds, and two loads of ten seconds each
differ by that. Within one load the phases of a watch lie side by side: what it moved in a short one is
compared with what it would have moved at the pace of its neighbours.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

EVENT = np.dtype([("ended_ns", "<u8"), ("took_ns", "<u4"), ("bytes", "<u4")])  # struct event
# profile.py reads the program's pace for 1.5 s before it attaches and after it has detached; there it only
# sleeps, but for the moments around it.
ALONE_NS = 1_200_000_000
BEFORE_NS, AFTER_NS = 150_000_000, 350_000_000
Span = tuple[int, int]
Events = Any  # an array of EVENT, sorted by ended_ns


@dataclass(frozen=True)
class Phases:
    """When what was attached, on CLOCK_MONOTONIC; `changes`: between segments, while hooks come and go."""

    alone: Sequence[Span]
    unprobed: Sequence[Span]
    ledger: Sequence[Span]
    calls: Sequence[Span]
    changes: Sequence[Span]

    @property
    def whole(self) -> Sequence[Span]:
        """From the first segment to the last: one stretch."""
        every = [*self.unprobed, *self.ledger, *self.calls]
        return [(min(begin for begin, _ in every), max(end for _, end in every))]


def phases(segments: Sequence[dict[str, Any]]) -> Phases:
    """Of run.segments of a record."""
    spans = [(one["begin_ns"], one["end_ns"]) for one in segments]
    arms: dict[str, list[Span]] = {"unprobed": [], "ledger": [], "calls": []}
    for one, span in zip(segments, spans, strict=True):
        arms[one["arm"]].append(span)
    began, ended = spans[0][0] - BEFORE_NS, spans[-1][1] + AFTER_NS
    alone = [(began - ALONE_NS, began), (ended, ended + ALONE_NS)]
    changes = [(end, begin) for (_, end), (begin, _) in pairwise(spans) if begin > end]
    return Phases(alone, changes=changes, **arms)


def read(path: Path) -> Events:
    """The events so far; of one that is only half there nothing."""
    data = path.read_bytes()
    return np.frombuffer(data[: len(data) // EVENT.itemsize * EVENT.itemsize], EVENT)


def inside(events: Events, spans: Sequence[Span]) -> Events:
    """Those that ended in one of the spans."""
    places = [np.searchsorted(events["ended_ns"], span) for span in spans]
    return np.concatenate([events[low:high] for low, high in places])


def length_s(spans: Sequence[Span]) -> float:
    return sum(end - begin for begin, end in spans) / 1e9


def rate(events: Events, spans: Sequence[Span]) -> float:
    """Bytes a second."""
    return float(inside(events, spans)["bytes"].sum()) / length_s(spans)


def p99_us(events: Events, spans: Sequence[Span]) -> float:
    return float(np.quantile(inside(events, spans)["took_ns"], 0.99)) / 1e3


def beside(events: Events, spans: Sequence[Span], steady: Sequence[Span]) -> list[float]:
    """Of each of the spans its pace over that of its neighbours among `steady`; a tenth at each end left out.

    They are sorted. What the host took for a moment falls into a few of them.
    """
    ratios = []
    for span in spans:
        before, after = _neighbours(span, steady)
        if before and after:
            ratios.append(rate(events, [span]) / math.sqrt(rate(events, before) * rate(events, after)))
    ratios.sort()
    cut = len(ratios) // 10
    return ratios[cut : len(ratios) - cut]


def lost(events: Events, spans: Sequence[Span], steady: Sequence[Span]) -> float:
    """What was moved less in the spans than at the pace of the nearest `steady` ones, as seconds of those."""
    short_s = 0.0
    for span in spans:
        before, after = _neighbours(span, steady)
        short_s += length_s([span]) - float(inside(events, [span])["bytes"].sum()) / rate(
            events, [*before, *after]
        )
    return short_s


def _neighbours(span: Span, steady: Sequence[Span]) -> tuple[Sequence[Span], Sequence[Span]]:
    """The nearest before it and the nearest after it; at an end there is none."""
    before = [other for other in steady if other[1] <= span[0]]
    return before[-1:], [other for other in steady if other[0] >= span[1]][:1]
