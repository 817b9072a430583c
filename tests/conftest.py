"""What all tests have: signals, a terminal, a temporary directory, and which of them this build can run."""

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

# A shell starts what runs in its background with SIGINT ignored, nohup(1) with SIGHUP: the programs of the
# tests would inherit that, and no test could stop them as a terminal does.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

# rich takes a terminal without a name, or one that is called `dumb` (sudo: `unknown`), for one of 80 by 25.
os.environ["TERM"] = "xterm"

# How long a property takes says nothing on a busy or emulated machine.
settings.register_profile("copyscope", deadline=None)
settings.load_profile("copyscope")


# What a build without liburing lacks (src/traffic/traffic.mk).
THROUGH_RINGS = ("uring_send", "uring_zc", "multishot")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A test of one of these (or marked `ring`) is skipped where the build lacks them, with what it says."""
    chosen = [
        item
        for item in items
        if item.get_closest_marker("ring") or any(name in item.name for name in THROUGH_RINGS)
    ]
    why = _lacks_rings() if chosen else None
    if why:
        for item in chosen:
            item.add_marker(pytest.mark.skip(reason=why))


def _lacks_rings() -> str | None:
    output = Path(os.environ.get("COPYSCOPE_OUTPUT", ROOT / ".output"))
    argv = [str(output / "traffic"), "send", "--impl", THROUGH_RINGS[0], "--check"]
    try:
        said = subprocess.run(argv, capture_output=True, text=True, check=False).stderr
    except OSError:
        return None
    return said.strip() if "not in this build" in said else None


# Of one processor: more than this taken by others, and a comparison of times says nothing.
OTHERS_MAX = float(os.environ.get("COPYSCOPE_OTHERS_MAX", "0.15"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """What is marked `quiet` and fails is skipped if other programs worked meanwhile, and says how much."""
    if item.get_closest_marker("quiet") is None:
        return (yield)
    before = _busy_and_own_s()
    started = time.monotonic()
    try:
        return (yield)
    except AssertionError as failure:
        busy_s, own_s = (now - then for now, then in zip(_busy_and_own_s(), before, strict=True))
        others = (busy_s - own_s) / (time.monotonic() - started)
        if others <= OTHERS_MAX:
            raise
        why = str(failure).partition("\n")[0]
        pytest.skip(f"{item.name}: other programs took {others:.0%} of a processor meanwhile: {why}")


def _busy_and_own_s() -> tuple[float, float]:
    """CPU time of the machine's programs since its start, stolen time with it; and that of the tests."""
    user, nice, system, _, _, _, _, steal = map(int, Path("/proc/stat").read_text().split()[1:9])
    spent = os.times()
    own = spent.user + spent.system + spent.children_user + spent.children_system
    return (user + nice + system + steal) / os.sysconf("SC_CLK_TCK"), own


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """What failed and then passed is named FLAKY; what failed twice shows its first failure, too."""
    failed = {row.nodeid for kind in ("failed", "error") for row in terminalreporter.getreports(kind)}
    for first in terminalreporter.getreports("rerun"):
        if first.nodeid in failed:
            terminalreporter.section(f"{first.nodeid}: the first time", "_")
            terminalreporter.write_line(first.longreprtext)
    for first in terminalreporter.getreports("rerun"):
        if first.nodeid not in failed:
            crash = getattr(first.longrepr, "reprcrash", None)
            why = (crash.message if crash else first.longreprtext).partition("\n")[0]
            terminalreporter.write_line(f"FLAKY {first.nodeid}: {why}")


@pytest.fixture(scope="session", autouse=True)
def _own_temporary_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What programs leave there that a test kills, or keep of a run that failed, goes with the tests."""
    tmp_path_factory.getbasetemp()  # stays where pytest has it, for who looks into a test that failed
    # A short name: below it there are sockets, whose names are bounded.
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
    """Of live tests under sudo a directory of the invoking user's: a watched command runs as that user.

    Nobody but root may enter pytest's own.
    """
    user = os.environ.get("SUDO_UID")
    if os.geteuid() != 0 or not user or request.node.get_closest_marker("live") is None:
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(prefix="copyscope-test-") as made:
        os.chown(made, int(user), -1)
        Path(made).chmod(0o755)
        yield Path(made)
