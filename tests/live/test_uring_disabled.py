# SPDX-License-Identifier: GPL-2.0-only
"""kernel.io_uring_disabled: every use of io_uring is refused in one line.

The tests run in guests only, because the sysctl would affect all programs of this machine.
"""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from profiling import is_root, profile

DISABLED = Path("/proc/sys/kernel/io_uring_disabled")

SWITCHED_OFF = "io_uring: switched off on this machine; allow it (sysctl kernel.io_uring_disabled=0"
NEEDS = "--receiver multishot: Operation not permitted; it needs io_uring"

pytestmark = [
    pytest.mark.live,
    pytest.mark.all,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
    pytest.mark.skipif("COPYSCOPE_NICS" not in os.environ, reason="writes a sysctl: in our own guests only"),
    pytest.mark.skipif(not DISABLED.exists(), reason="this kernel has no such sysctl (Linux 6.6 has)"),
]


@pytest.fixture(autouse=True)
def disabled() -> Iterator[None]:
    before = DISABLED.read_text()
    DISABLED.write_text("2")
    yield
    DISABLED.write_text(before)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        ("--impl uring_send", SWITCHED_OFF),
        ("--impl uring_zc", SWITCHED_OFF),
        ("--impl one_copy --receiver multishot", NEEDS),
    ],
)
def test_disabled_io_uring_is_refused_in_one_line(words: str, error: str) -> None:
    done = profile(*words.split(), "--duration", "1", check=None)
    assert (done.returncode in (1, 2), done.stdout, done.stderr.count("\n")) == (True, "", 1)
    assert error in done.stderr


def test_strategies_without_io_uring_still_work() -> None:
    assert "one_copy" in profile("--impl", "one_copy", "--messages", "23").stdout


def test_doctor_reports_disabled_io_uring() -> None:
    doctor = subprocess.run(
        ["bin/copyscope", "doctor"], capture_output=True, text=True, check=False, timeout=300
    )
    assert any("io_uring" in line and "io_uring_disabled" in line for line in doctor.stdout.splitlines())
