# SPDX-License-Identifier: GPL-2.0-only
"""Records with stacks, as runs with --stacks make them."""

from collections.abc import Iterable
from typing import Any

from copyscope.taxonomy.samples import to_record, to_stacks
from copyscope.taxonomy.taxonomy import Taxonomy

from . import raw_record
from .documents import derive

SAMPLE_NS = 250_000


def record_with_stacks(stacks: Iterable[tuple[str, list[str], int]]) -> dict[str, Any]:
    """Return a derived record of one_copy. `stacks`: (process, frames with the leaf first, samples)."""
    samples: Any = [
        {"side": side, "event": "cpu-clock", "frames": frames}
        | {"samples": count, "weight": count * SAMPLE_NS, "weight_squared": count * float(SAMPLE_NS) ** 2}
        for side, frames, count in stacks
    ]
    taxonomy = Taxonomy.load()
    measured = {"samples": to_record(samples, taxonomy), "stacks": to_stacks(samples, taxonomy)}
    return derive(raw_record("one_copy") | measured)
