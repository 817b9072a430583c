# SPDX-License-Identifier: GPL-2.0-only
"""Cgroups of processes, and how long the CPU quotas of these cgroups stopped threads.

Sources: cgroups(7), Documentation/admin-guide/cgroup-v2.rst, Documentation/scheduler/sched-bwc.rst.
"""

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from copyscope.machine.processors import ROOT


def read_memberships(pid: int | str, root: Path = ROOT) -> Iterator[tuple[str, str]]:
    """Yield (controllers, path) of each cgroup of a process. For version 2, `controllers` is empty.
    `pid` may be `self`.

    Nothing is yielded if the process is gone.
    """
    try:
        lines = (root / f"proc/{pid}/cgroup").read_text(errors="surrogateescape").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        yield controllers, path


def read_mounts(controller: str = "", root: Path = ROOT) -> list[Path]:
    """Return the mount points of a version 1 controller, or of version 2 if `controller` is empty."""
    text = (root / "proc/self/mounts").read_text(errors="surrogateescape")
    mounts = [line.split() for line in text.splitlines()]
    kind = "cgroup" if controller else "cgroup2"
    return [
        Path(fields[1])
        for fields in mounts
        if fields[2] == kind and (not controller or controller in fields[3].split(","))
    ]


@dataclass(frozen=True)
class CgroupQuota:
    """Effect of a cgroup's CPU quota over a period.

    stops: number of periods in which the quota stopped threads of the cgroup
    stopped_ns: time for which threads were stopped, summed over CPUs
    """

    stops: int
    stopped_ns: int


def find_cgroups(pids: Iterable[int], root: Path = ROOT) -> set[Path]:
    """Return the cgroups that may limit the CPU time of processes: their own cgroups and all ancestors.

    The set is empty if /proc/self/mounts is missing.
    """
    cgroups: set[Path] = set()
    with contextlib.suppress(OSError):
        mounts_v2, mounts_v1 = read_mounts("", root), read_mounts("cpu", root)
        for controllers, path in {row for pid in pids for row in read_memberships(pid, root)}:
            mounts = mounts_v2 if not controllers else mounts_v1 if "cpu" in controllers.split(",") else []
            cgroups |= {mount / folder for mount in mounts for folder in with_parents(path)}
    return cgroups


class CpuQuotas:
    """Effects of the CPU quotas of a growing set of cgroups."""

    def __init__(self, root: Path = ROOT) -> None:
        self._root = root
        # First reading of each cgroup.
        self._first: dict[Path, CgroupQuota] = {}

    def add(self, pids: Iterable[int]) -> None:
        """Add the cgroups of processes. A cgroup can still be read after its processes have exited."""
        for cgroup in find_cgroups(pids, self._root) - self._first.keys():
            reading = self._read(cgroup)
            if reading is not None:
                self._first[cgroup] = reading

    def read(self) -> dict[str, CgroupQuota]:
        """Return the effects since each cgroup was added, by path. Removed cgroups are left out."""
        now = {cgroup: self._read(cgroup) for cgroup in self._first}
        return {
            str(cgroup): CgroupQuota(last.stops - first.stops, last.stopped_ns - first.stopped_ns)
            for cgroup, first in self._first.items()
            if (last := now[cgroup]) is not None
        }

    def _read(self, cgroup: Path) -> CgroupQuota | None:
        return _read_quota(self._root / cgroup.relative_to("/"))


def _read_quota(cgroup: Path) -> CgroupQuota | None:
    """Return the effect of a cgroup's CPU quota, or None if the cgroup is gone or cannot have a quota."""
    try:
        words = (cgroup / "cpu.stat").read_text().split()
    except OSError:
        return None
    counts = dict(zip(words[::2], map(int, words[1::2]), strict=True))
    if "nr_throttled" not in counts:
        return None
    # Version 1 has throttled_time in ns, version 2 has throttled_usec.
    stopped_ns = counts.get("throttled_time", counts.get("throttled_usec", 0) * 1000)
    return CgroupQuota(counts["nr_throttled"], stopped_ns)


def with_parents(path: str) -> list[Path]:
    """Return a cgroup path and all paths above it, relative to the mount point."""
    relative = Path(path.lstrip("/"))
    return [relative, *relative.parents]
