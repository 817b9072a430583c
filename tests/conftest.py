# SPDX-License-Identifier: GPL-2.0-only
"""Set up all tests: signals, a terminal, a temporary directory, skips of what this build or machine lacks."""

import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent

# A shell starts background programs with SIGINT and SIGQUIT ignored, and nohup(1) ignores SIGHUP. Programs of
# the tests would inherit that, and no test could stop them with these signals.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGQUIT, signal.SIG_DFL)

# rich assumes 80 by 25 characters if TERM is unset, "dumb" or, under sudo, "unknown".
os.environ["TERM"] = "xterm"

# A busy or emulated machine makes the duration of a property meaningless.
settings.register_profile("copyscope", deadline=None)
settings.load_profile("copyscope")


# Strategies and readings that a build without liburing does not have (src/traffic/traffic.mk).
NEED_LIBURING = ("uring_send", "uring_zc", "multishot")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip tests that need liburing, by their name or the mark `ring`, in a build without it."""
    ring_tests = [
        item
        for item in items
        if item.get_closest_marker("ring") or any(name in item.name for name in NEED_LIBURING)
    ]
    reason = _why_no_rings() if ring_tests else None
    if reason:
        for item in ring_tests:
            item.add_marker(pytest.mark.skip(reason=reason))


def _why_no_rings() -> str | None:
    """Return the error of the traffic program if it was built without liburing, else None."""
    output = Path(os.environ.get("COPYSCOPE_OUTPUT", ROOT / ".output"))
    argv = [str(output / "traffic"), "send", "--impl", NEED_LIBURING[0], "--check"]
    try:
        errors = subprocess.run(argv, capture_output=True, text=True, check=False).stderr
    except OSError:
        return None
    return errors.strip() if "not in this build" in errors else None


# If other programs use more than this part of one CPU, a comparison of times is meaningless.
OTHERS_MAX = float(os.environ.get("COPYSCOPE_OTHERS_MAX", "0.15"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Skip a failing test with the mark `quiet` if other programs used the CPU, and say how much."""
    if item.get_closest_marker("quiet") is None:
        return (yield)
    before = _busy_and_own_s()
    started = time.monotonic()
    try:
        return (yield)
    except AssertionError as failure:
        busy_s, own_s = (end - start for start, end in zip(before, _busy_and_own_s(), strict=True))
        others_load = (busy_s - own_s) / (time.monotonic() - started)
        if others_load <= OTHERS_MAX:
            raise
        first_line = str(failure).partition("\n")[0]
        pytest.skip(
            f"{item.name}: other programs took {others_load:.0%} of a processor meanwhile: {first_line}"
        )


def _busy_and_own_s() -> tuple[float, float]:
    """Return (busy time of all CPUs since boot, including stolen time; CPU time of the tests), in seconds."""
    user, nice, system, _, _, _, _, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    spent = os.times()
    own = spent.user + spent.system + spent.children_user + spent.children_system
    return (user + nice + system + steal) / os.sysconf("SC_CLK_TCK"), own


@pytest.fixture(scope="session", autouse=True)
def _own_temporary_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Delete at the end what killed programs and failed runs leave in TMPDIR."""
    tmp_path_factory.getbasetemp()  # stays in the usual place, for inspection after a failure
    # The name is short because the length of socket paths is limited.
    with (
        tempfile.TemporaryDirectory(prefix="cs-", ignore_cleanup_errors=True) as name,
        pytest.MonkeyPatch.context() as patch,
    ):
        Path(name).chmod(0o1777)
        patch.setenv("TMPDIR", name)
        patch.setattr(tempfile, "tempdir", None)
        yield


@pytest.fixture(name="tmp_path")
def _tmp_path(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Path]:
    """Give live tests under sudo a directory that belongs to the invoking user.

    A watched command runs as that user, and only root may enter the directory of pytest.
    """
    user = os.environ.get("SUDO_UID")
    if os.geteuid() != 0 or not user or request.node.get_closest_marker("live") is None:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="copyscope-test-") as directory:
        os.chown(directory, int(user), -1)
        Path(directory).chmod(0o755)
        yield Path(directory)
