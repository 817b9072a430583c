# SPDX-License-Identifier: GPL-2.0-only
"""Programs of a node that metrics name: those with the most CPU time among the programs that use sockets.

All other programs share one name, OTHER. A counter must never fall, so a program that gets a name starts at
zero, and what a nameless program has moved stays with OTHER.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from copyscope.record.messages import ProgramMessage
from copyscope.taxonomy.events import event_name, time_names
from copyscope.taxonomy.samples import StackSample, classify_sample
from copyscope.taxonomy.taxonomy import Taxonomy

# Place (container, systemd unit or cgroup) and name of a program: values of the labels `place` and `program`.
Program = tuple[str, str]
OTHER: Program = ("other", "other")
# Factor of the recent CPU time at each sampled second. With the default interval a quarter is left after two
# minutes.
DECAY = 0.85
# A program replaces a named one only with this many times its CPU time, so that names rarely change.
LEAD = 1.5
# Weights of samples: account or stage -> program -> weight.
ProgramWeights = Mapping[str, Mapping[Program, float]]


class CgroupFinder(Protocol):
    """Names of cgroups (run/cgroup_names.py)."""

    def update(self, cgroups: Iterable[int]) -> None: ...

    def find(self, cgroup: int) -> str: ...


class NamedPrograms:
    """The programs that metrics name, and the growth of all programs' counts between two readings."""

    def __init__(self, names_max: int, cgroups: CgroupFinder) -> None:
        """Name at most `names_max` programs. `cgroups`: finds the places of programs."""
        self._names_max = names_max
        self._cgroups = cgroups
        self._named: set[Program] = set()
        # Recent CPU time of each program that uses sockets, from samples.
        self._recent_ns: dict[Program, float] = {}
        # Last reading of each row of the collector, and the programs of these rows.
        self._last: dict[tuple[int | str, ...], ProgramMessage] = {}
        self._present: set[Program] = set()

    def begin_session(self) -> None:
        """Forget the last reading, because the collector restarts at zero."""
        self._last = {}

    def label(self, program: Program) -> Program:
        """Return the program, or OTHER if metrics do not name it."""
        return program if program in self._named else OTHER

    def read(self, rows: Iterable[ProgramMessage]) -> Iterator[tuple[Program, ProgramMessage]]:
        """Yield the growth of each row since the last reading, with the label of its program."""
        rows = list(rows)
        self._cgroups.update(row.cgroup for row in rows if row.cgroup)
        growths: list[tuple[Program, ProgramMessage]] = []
        bytes_by_program: dict[Program, int] = defaultdict(int)
        last, self._last = self._last, {}
        for row in rows:
            program = (self._cgroups.find(row.cgroup), row.comm) if row.cgroup else OTHER
            growth = _subtract(row, last.get(row[:5]))
            growths.append((program, growth))
            bytes_by_program[program] += growth.bytes
            if not row.is_last:
                self._last[row[:5]] = row
        bytes_by_program.pop(OTHER, None)
        self._present = set(bytes_by_program)
        self._name_new(bytes_by_program)
        for program, growth in growths:
            if growth.calls or growth.zerocopy_calls:
                yield self.label(program), growth

    def _name_new(self, bytes_by_program: Mapping[Program, int]) -> None:
        """Name new programs while there is room; first those that have moved the most bytes."""
        for program in bytes_by_program:
            self._recent_ns.setdefault(program, 0.0)
        nameless = sorted(
            bytes_by_program.keys() - self._named,
            key=lambda program: (self._recent_ns[program], bytes_by_program[program]),
            reverse=True,
        )
        self._named.update(nameless[: max(0, self._names_max - len(self._named))])

    def rank(self, cpu_ns: Mapping[Program, float]) -> set[Program]:
        """Choose the names after a sampled second, and return the programs that lost theirs.

        `cpu_ns`: CPU time of each program in this second. Programs without sockets get no name.
        """
        kept = self._recent_ns.keys() & (self._present | self._named)
        self._recent_ns = {p: self._recent_ns[p] * DECAY + cpu_ns.get(p, 0.0) for p in kept}

        def rank_ns(program: Program) -> float:
            return self._recent_ns[program] * (LEAD if program in self._named else 1.0)

        ranked = sorted(kept, key=lambda program: (rank_ns(program), program in self._named), reverse=True)
        before, self._named = self._named, set(ranked[: self._names_max])
        return before - self._named

    def weights(self, samples: Iterable[StackSample], taxonomy: Taxonomy) -> ProgramWeights:
        """Return the weight of each program in each account and stage, from the samples of its own time."""
        own = [sample for sample in samples if "thread" in sample]
        events = time_names({sample["event"] for sample in own}, {}) or ()
        weights: dict[str, dict[Program, float]] = defaultdict(lambda: defaultdict(float))
        self._cgroups.update(sample["cgroup"] for sample in own if "cgroup" in sample)
        for sample in own:
            if event_name(sample["event"]) in events:
                program = self._cgroups.find(sample.get("cgroup", 0)), sample["thread"]
                weights[classify_sample(sample, taxonomy).category][program] += sample["weight"]
        return weights


def _subtract(row: ProgramMessage, before: ProgramMessage | None) -> ProgramMessage:
    """Return the growth of a row since an earlier reading."""
    if before is None:
        return row
    return row._replace(
        calls=row.calls - before.calls,
        bytes=row.bytes - before.bytes,
        zerocopy_calls=row.zerocopy_calls - before.zerocopy_calls,
        zerocopy_bytes=row.zerocopy_bytes - before.zerocopy_bytes,
    )
