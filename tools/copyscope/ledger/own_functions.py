# SPDX-License-Identifier: GPL-2.0-only
"""Functions of a watched program that take most of its CPU time outside the kernel. Pure."""

from typing import NamedTuple

from copyscope.ledger.attribution import time_event_names, time_samples
from copyscope.ledger.share import SAMPLES_MIN
from copyscope.record.measured import Measured
from copyscope.taxonomy.events import event_name

# Number of functions that are returned, and least share (0..1) of the program's CPU time.
FUNCTIONS_SHOWN, SHARE_MIN = 3, 0.01


class OwnFunction(NamedTuple):
    """A function of the program, and its share (0..1) of the program's CPU time."""

    name: str
    share: float


def own_functions(raw: Measured) -> list[OwnFunction]:
    """Return the program's three functions with the most samples, most samples first.

    Functions that copy or encrypt have rows in the ledger, and are left out. The list is empty if there are
    too few samples, or if no function has a name.
    """
    events = time_event_names(raw) or ()
    rows = [row for row in raw.user_functions or [] if event_name(row.event) in events]
    samples = sum(row.samples for row in time_samples(raw) if row.side == "target")
    if samples < SAMPLES_MIN:
        return []
    busiest = sorted(rows, key=lambda row: -row.samples)[:FUNCTIONS_SHOWN]
    found = [OwnFunction(row.function, row.samples / samples) for row in busiest]
    return [function for function in found if function.share >= SHARE_MIN]
