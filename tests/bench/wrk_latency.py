"""How long requests took by wrk: of those that it made, and with those that it would have made. Pure.

wrk prints the latter. A connection that waits for an answer makes no request; for each that took longer than
two of its mean intervals wrk adds those which the connection would have made meanwhile, one interval apart
(stats_correct() in src/stats.c, "coordinated omission"). So its percentiles say for how large a part of the
time somebody waited, and not how long the requests took.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

HISTOGRAM = re.compile(r"^histogram (\d+) (\d+)\n((?:\d+ \d+\n)+)", re.MULTILINE)


@dataclass(frozen=True)
class Latencies:
    """Of one load: how many requests took so many microseconds."""

    made: Mapping[int, int]
    waited: Mapping[int, int]  # with those that were added


def parse(said: str, connections: int) -> Latencies | None:
    """Of what wrk printed with wrk.lua; None where that is not in it."""
    found = HISTOGRAM.search(said)
    if found is None:
        return None
    requests, duration_us = int(found[1]), int(found[2])
    waited = {int(us): int(count) for us, count in map(str.split, found[3].splitlines())}
    each = requests // connections
    return Latencies(without_added(waited, duration_us // each) if each else waited, waited)


def without_added(waited: Mapping[int, int], interval_us: int) -> dict[int, int]:
    """What was there before wrk added requests: from the slowest down each is known when its turn comes."""
    made = dict(waited)
    for us in sorted(waited, reverse=True):
        count = made[us]
        if us < 2 * interval_us or not count:
            continue
        for added_us in range(us - interval_us, interval_us, -interval_us):
            made[added_us] -= count
    return made


def percentile_us(counts: Mapping[int, int], part: float) -> int:
    """The least that so large a part of all took at most."""
    rank, seen = part * sum(counts.values()), 0
    for us in sorted(counts):
        seen += counts[us]
        if seen >= rank:
            return us
    raise ValueError("no request was made")
