# SPDX-License-Identifier: GPL-2.0-only
"""Cgroups of processes, their names, and how long the CPU quotas of these cgroups stopped threads.

Sources: cgroups(7), Documentation/admin-guide/cgroup-v2.rst, Documentation/scheduler/sched-bwc.rst.
"""

import contextlib
import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from copyscope.machine.processors import ROOT

# Pattern of a container in a cgroup path: docker-ID.scope, libpod-ID.scope, cri-containerd-ID.scope,
# crio-ID.scope, or just ID with cgroupfs.
CONTAINER_ID = re.compile(r"(?:^|-)([0-9a-f]{64})(?:\.scope)?$")
# Pattern of a container of LXC or nspawn in a cgroup path.
_MACHINE = re.compile(r"^(?:lxc\.payload\.|machine-|systemd-nspawn@)(.+?)(?:\.scope|\.service)?$")
# Pattern of a systemd unit in a cgroup path. A slice only contains units.
_UNIT = re.compile(r"\.(?:service|scope|socket|mount|swap)$")
# Number of characters of a container's ID that docker and crictl print.
ID_CHARACTERS = 12
# Most cgroups whose names are read at once.
CGROUPS_MAX = 16_384


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


def place_of(path: str) -> str:
    """Return the name of the container of a cgroup, or else of its systemd unit, or else its path.

    A container is named by the start of its ID, or by its name in LXC or nspawn.
    """
    parts = path.split("/")[::-1]
    for part in parts:
        if (container := CONTAINER_ID.search(part)) is not None:
            return container[1][:ID_CHARACTERS]
        if (machine := _MACHINE.search(part)) is not None:
            return machine[1].replace("\\x2d", "-")
    return next(filter(_UNIT.search, parts), f"/{path.strip('/')}")


def read_cgroup_paths(mount: Path) -> dict[int, str]:
    """Map the id of each cgroup (version 2), which is its inode, to its path below the mount point.

    At most CGROUPS_MAX are read, those near the root first.
    """
    paths = {mount.stat().st_ino: ""}
    unread = [""]
    for path in unread:
        # The cgroup may be removed meanwhile.
        with contextlib.suppress(OSError), os.scandir(mount / path) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False) and len(paths) < CGROUPS_MAX:
                    paths[entry.inode()] = f"{path}/{entry.name}".lstrip("/")
                    unread.append(paths[entry.inode()])
    return paths
