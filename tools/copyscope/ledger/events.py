"""Hardware events of the rows: each row's share of the samples of an event, times what was counted. Pure.

Only a process has a counter. Softirq work on the time of others is scaled as samples are on the sides that
have one, so that it can be added to theirs.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from copyscope.ledger.attribution import Key, Weights, weights_of
from copyscope.ledger.cpu_time import counters_of
from copyscope.record.derived import EventEstimate
from copyscope.record.instruments import Counter, Event
from copyscope.record.measured import Measured
from copyscope.taxonomy.events import EVENT_COLUMNS, divided_by, event_name

METHOD = "sampled"


@dataclass(frozen=True)
class SideEvent:
    """How the samples of one event become a count of it: `scale` per unit of weight, or why not."""

    weights: Weights
    scale: float | None
    reason: str | None
    # Whether the sum of all rows is a counter's, and only its division is sampled.
    counted: bool = True
    # What a sample weighs, by those of other sides, where this one has none.
    each: float = 0.0

    def estimate(self, key: Key) -> tuple[int, EventEstimate] | None:
        """The count of a row, with the interval that its samples give it; None: `reason`."""
        if self.scale is None:
            return None
        found = self.weights.interval((key,), whole_known=self.counted, each=self.each).scaled(self.scale)
        value = round(self.weights.weight.get(key, 0.0) * self.scale)
        samples = self.weights.samples.get(key, 0)
        return value, EventEstimate(round(found.low), round(found.high), found.level, samples, METHOD)


Events = dict[str, dict[str, SideEvent]]  # side -> column


def events_of(raw: Measured) -> Events:
    """All columns of all sides."""
    sides = raw.run.sides
    found: Events = {
        side: {column: _of_process(raw, side, names) for column, names in EVENT_COLUMNS.items()}
        for side in sides
    }
    beside = {
        column: _of_others(raw, names, [found[side][column] for side in sides])
        for column, names in EVENT_COLUMNS.items()
    }
    return {**found, "other": beside}


def _of_process(raw: Measured, side: str, names: Sequence[str]) -> SideEvent:
    weights = _weights(raw, side, names)
    counter = counter_of(raw, side, names)
    if counter is None:
        reason = f"{names[0]}: not counted in this run"
    elif counter.value is None:
        reason = counter.reason or f"{names[0]}: {counter.status}"
    elif weights.all_weight <= 0:
        reason = why_not_divided(raw.sampler.events, side, names)
    else:
        return SideEvent(weights, counter.value / weights.all_weight, None)
    return SideEvent(weights, None, reason)


def _weights(raw: Measured, side: str, names: Sequence[str]) -> Weights:
    units = {event.name: event.unit for event in raw.sampler.events}
    return weights_of(raw.samples, side, divided_by(names, units))


def counter_of(raw: Measured, side: str, names: Sequence[str]) -> Counter | None:
    """The counter of an event, by the first of its names that was counted."""
    counters = {event_name(name): value for name, value in counters_of(raw, side).items()}
    return next((counters[name] for name in names if name in counters), None)


def why_not_divided(events: Iterable[Event], side: str, names: Sequence[str]) -> str:
    """Why what was counted of a side is not known of its rows."""
    event = next((event for event in events if event.name in names), None)
    if event is None:
        # No counter of the PMU is left for it beside those that are sampled.
        return f"{names[0]}: counted for the {side} as a whole, not sampled (function hooks count it)"
    why = f": {event.reason}" if event.reason else f", but not sampled on the {side}"
    return f"{names[0]}: counted for the {side} as a whole{why}"


def _of_others(raw: Measured, names: Sequence[str], known: Iterable[SideEvent]) -> SideEvent:
    weights = _weights(raw, "other", names)
    scaled = [event for event in known if event.scale is not None]
    covered = sum(event.weights.all_weight for event in scaled)
    if not covered:
        return SideEvent(weights, None, "no process to count on: ksoftirqd and interrupts of idle")
    events = sum(event.weights.all_weight * (event.scale or 0.0) for event in scaled)
    each = sum(event.weights.all_squared for event in scaled) / covered
    return SideEvent(weights, events / covered, None, counted=False, each=each)
