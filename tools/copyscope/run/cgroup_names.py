# SPDX-License-Identifier: GPL-2.0-only
"""Names of the cgroups in which programs run: containers, systemd units, or paths."""

from collections.abc import Callable, Iterable, Mapping

from copyscope.machine.cgroups import CGROUPS_MAX, place_of, read_cgroup_paths, read_mounts
from copyscope.run.processes import CpuBudget

# Name of a cgroup that was removed before its name was read, or that this mount of cgroupfs does not show.
UNKNOWN_NAME = "unknown"
# Share of one CPU for reading the names.
CPU_SHARE = 0.005


class CgroupNames:
    """Names of cgroups. They are read again when an unknown id appears."""

    def __init__(self, read: Callable[[], Mapping[int, str]] | None = None) -> None:
        """Start without names. `read`: returns the path of each cgroup by its id; default: from cgroupfs."""
        self._read = read or _read_paths
        self._budget = CpuBudget(CPU_SHARE)
        self._names: dict[int, str] = {}

    def update(self, cgroups: Iterable[int]) -> None:
        """Read the names of all cgroups if one of these ids is unknown, and the CPU time budget allows it."""
        unknown = set(cgroups) - self._names.keys()
        if not unknown or not self._budget.allows_use():
            return
        if len(self._names) > CGROUPS_MAX:
            self._names.clear()
        with self._budget:
            paths = self._read()
        self._names |= dict.fromkeys(unknown, UNKNOWN_NAME)
        self._names |= {cgroup: place_of(path) for cgroup, path in paths.items()}

    def find(self, cgroup: int) -> str:
        """Return the name of a cgroup."""
        return self._names.get(cgroup, UNKNOWN_NAME)


def _read_paths() -> Mapping[int, str]:
    """Return the path of each cgroup by its id; an empty mapping if no cgroup of version 2 is mounted."""
    mount = next(iter(read_mounts()), None)
    return {} if mount is None else read_cgroup_paths(mount)
