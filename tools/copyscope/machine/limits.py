# SPDX-License-Identifier: GPL-2.0-only
"""Check that this process may use enough file descriptors and memory to measure.

Without this check, the measurement would fail later, or the kernel might kill it without a message.
"""

import resource
from collections.abc import Iterator
from pathlib import Path

from copyscope.base.errors import RunError
from copyscope.machine.cgroups import read_memberships, with_parents

# Smallest limits with which a watch on two CPUs succeeded, rounded up: 128 descriptors, 200 MiB of addresses,
# and 118 MiB of memory, of which BPF maps take about a half.
FILES_MIN, ADDRESSES_MIN_BYTES, MEMORY_MIN_BYTES = 256, 256 << 20, 128 << 20
# Directory of the cgroups of the memory controller, and file of its limit, by its name in /proc/PID/cgroup.
MEMORY_FILES = {
    "": ("sys/fs/cgroup", "memory.max"),
    "memory": ("sys/fs/cgroup/memory", "memory.limit_in_bytes"),
}


def check_limits(root: Path = Path("/")) -> None:
    """Raise RunError if a limit of this process is too low to measure. `root`: directory of proc and sys."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files != resource.RLIM_INFINITY and files < FILES_MIN:
        raise RunError(
            f"file descriptors: {files} are allowed, {FILES_MIN} are needed; run ulimit -n {FILES_MIN}"
        )
    addresses, _ = resource.getrlimit(resource.RLIMIT_AS)
    if addresses != resource.RLIM_INFINITY and addresses < ADDRESSES_MIN_BYTES:
        raise RunError(
            f"address space: {addresses >> 20} MiB are allowed, {ADDRESSES_MIN_BYTES >> 20} MiB are needed; "
            "run ulimit -v unlimited"
        )
    memory = min(read_memory_limits(root), default=MEMORY_MIN_BYTES)
    if memory < MEMORY_MIN_BYTES:
        raise RunError(
            f"memory: the cgroup allows {memory >> 20} MiB, {MEMORY_MIN_BYTES >> 20} MiB are needed; raise "
            "memory.max of the container or unit that copyscope runs in"
        )


def read_memory_limits(root: Path) -> Iterator[int]:
    """Yield the memory limits in bytes of this process's cgroup and of the cgroups above it."""
    for controllers, path in read_memberships("self", root):
        if controllers in MEMORY_FILES:
            top, name = MEMORY_FILES[controllers]
            for directory in with_parents(path):
                try:
                    text = (root / top / directory / name).read_text().strip()
                except OSError:  # the root cgroup has no limit, and a container may not show its cgroup
                    continue
                if text.isdecimal():
                    yield int(text)
