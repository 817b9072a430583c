# SPDX-License-Identifier: GPL-2.0-only
"""Limits of the process that are too low to measure are named before the measurement."""

import resource
from pathlib import Path

import pytest
from copyscope.base.errors import RunError
from copyscope.machine.limits import check_limits

UNLIMITED = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)


@pytest.mark.parametrize(
    ("number", "limit", "message"),
    [
        (resource.RLIMIT_NOFILE, 64, "file descriptors: 64 are allowed, 256 are needed; run ulimit -n 256"),
        (resource.RLIMIT_AS, 100 << 20, "address space: 100 MiB are allowed, 256 MiB are needed"),
    ],
)
def test_a_low_limit_of_the_process_is_named(
    number: int, limit: int, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = dict.fromkeys((resource.RLIMIT_NOFILE, resource.RLIMIT_AS), UNLIMITED)
    monkeypatch.setattr(resource, "getrlimit", limits.__getitem__)
    check_limits(tmp_path)
    limits[number] = (limit, limit)
    with pytest.raises(RunError, match=message):
        check_limits(tmp_path)


@pytest.mark.parametrize(
    ("line", "directory", "name"),
    [
        ("0::/a/b", "sys/fs/cgroup/a", "memory.max"),
        ("0::/", "sys/fs/cgroup", "memory.max"),
        ("4:memory:/a/b", "sys/fs/cgroup/memory/a/b", "memory.limit_in_bytes"),
    ],
)
def test_a_low_limit_of_a_cgroup_or_of_one_above_is_named(
    line: str, directory: str, name: str, tmp_path: Path
) -> None:
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text(f"9:name=systemd:/\n{line}\n")
    (tmp_path / directory).mkdir(parents=True)
    for text, is_low in (("max", False), (str(1 << 40), False), (str(48 << 20), True)):
        (tmp_path / directory / name).write_text(f"{text}\n")
        if is_low:
            with pytest.raises(RunError, match="the cgroup allows 48 MiB, 128 MiB are needed"):
                check_limits(tmp_path)
        else:
            check_limits(tmp_path)
