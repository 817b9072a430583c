# SPDX-License-Identifier: GPL-2.0-only
"""Invented records of a sweep: each strategy has a cost per call and per KiB, and noise.

sweep()                                      4 strategies x 3 sizes x 2 threads x 3 repeats
sweep(sizes=(64, 65_536), pmu=True)          with hardware counters
store(records, tmp_path / "host" / "demo")   the directory that copyscope report reads
SMALL, small()                               an experiment of four runs, and their records
"""

import pickle
import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import patch

from copyscope.record import store as records_on_disk
from copyscope.record.store import RECORDS_NAME, append_record, read_lines

import builders

from .documents import derive

Record = dict[str, Any]

IMPLS = ("per_field", "two_copy", "one_copy", "zero_copy")
SIZES = (64, 4096, 65_536)
# Strategy -> ns per message, ns per KiB. A call of zero_copy is expensive, and over veth it still copies.
COSTS = {
    "null": (60, 0),
    "per_field": (9_000, 160),
    "two_copy": (1_900, 190),
    "one_copy": (2_400, 150),
    "zero_copy": (4_800, 185),
}
GATHER_NS_PER_KIB = 30
CPU_NS = 285_000_000
SMALL = """\
name = "demo"
question = "Which one?"
expected = "1m"
repeats = 2
duration_s = 1.0
seed = 1
[factors]
impl = ["one_copy", "zero_copy"]
size = [4096]
threads = [1]
"""


def sweep(
    impls: Sequence[str] = IMPLS,
    sizes: Sequence[int] = SIZES,
    threads: Sequence[int] = (1, 4),
    repeats: int = 3,
    **options: Any,
) -> list[Record]:
    """Return complete records, in the order of a sweep. options: options of raw_record()."""
    records: list[Record] = []
    for repeat in range(repeats):
        for size in sizes:
            for count in threads:
                for impl in impls:
                    factors = {"impl": impl, "size": size, "threads": count}
                    records.append(run_record(factors, repeat, len(records), **options))
    return records


def small(repeats: int = 2) -> list[Record]:
    """Return the records of the experiment SMALL."""
    return sweep(("one_copy", "zero_copy"), (4096,), (1,), repeats)


def run_record(factors: dict[str, Any], repeat: int, order: int, **options: Any) -> Record:
    """Return the record of a run of the sweep. Equal arguments give equal records."""
    identity = (factors["impl"], factors["size"], factors["threads"], repeat)
    record: Record = pickle.loads(_derived(*identity, tuple(sorted(options.items()))))
    record["run"] |= {
        "experiment": "demo",
        "factors": factors,
        "repeat": repeat,
        "order": order,
        "id": records_on_disk.run_id("demo", factors, repeat),
    }
    return record


@cache
def _derived(impl: str, size: int, threads: int, repeat: int, options: tuple[tuple[str, Any], ...]) -> bytes:
    """Return a pickled record without its position in the sweep. Tests share a few hundred cached records."""
    noise = random.Random(f"{impl} {size} {threads} {repeat}").gauss(1.0, 0.03)
    per_call, per_kib = COSTS[impl]
    messages = max(1, int(CPU_NS * noise * threads**0.5 / (per_call + per_kib * size / 1024)))
    _, _, receiver_ns, user_copies, calls = builders.RATES[impl]
    rates = {impl: (messages, CPU_NS, receiver_ns, user_copies, calls)}
    gather_ns = 20 + round(GATHER_NS_PER_KIB * size / 1024 / threads**0.5)
    with patch.dict(builders.RATES, rates), patch.object(builders, "GATHER_NS_PER_MESSAGE", gather_ns):
        raw = builders.raw_record(impl, size_bytes=size, threads=threads, **dict(options))
    return pickle.dumps(derive(raw))


def kept(directory: Path) -> list[Record]:
    """Return the records in the directory of a sweep, in the order of the file."""
    lines = read_lines(directory / RECORDS_NAME)
    return [line.record for line in lines if line.record is not None]


def store(records: Sequence[Record], directory: Path) -> Path:
    """Write records to records.jsonl.gz of a directory, in order of their ids. Return the directory."""
    directory.mkdir(parents=True, exist_ok=True)
    for record in sorted(records, key=lambda record: str(record["run"]["id"])):
        append_record(directory / RECORDS_NAME, record)
    return directory
