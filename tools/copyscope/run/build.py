# SPDX-License-Identifier: GPL-2.0-only
"""Rebuild the compiled programs before a run, as the user who owns the tree."""

import fcntl
import functools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Timer
from typing import IO

from copyscope.base import files, paths
from copyscope.base.errors import RunError
from copyscope.base.programs import LimitError, StartedProgram, run_program
from copyscope.base.spelling import one_line
from copyscope.machine.topology import environment_of, owner_of

# Maximum time in seconds that a step takes without a message. make needs less time if all programs are up
# to date.
SILENT_TIME_S = 2.0
# Time limit in seconds. A full build takes a minute, or several minutes on an emulated machine.
BUILD_TIMEOUT_S = 900.0
# Interval in seconds between attempts to lock the tree.
LOCK_RETRY_S = 0.1


def build_if_stale(say: Callable[[str], None] | None = None, targets: Sequence[str] = ("artifacts",)) -> None:
    """Run make for the targets, as the owner of the tree. Raises RunError with the first compiler error.

    `say` prints a line if the build takes longer than SILENT_TIME_S. In an installed tree, or one that this
    user may not write, nothing is built, and the existing programs are used.
    """
    if paths.INSTALLED or not os.access(paths.ROOT, os.W_OK):
        return
    make = ["make", "--silent", "--no-print-directory", "-C", str(paths.ROOT), *targets]
    try:
        # Under sudo, make runs as the owner of the tree. root builds only trees of root (in a container).
        owner = owner_of(paths.ROOT)
        as_user = [] if owner is None else owner.argv()
        # Two runs must not build at the same time. Closing the file releases the lock.
        with (paths.ROOT / "Makefile").open("rb") as lock:
            _lock(lock, say)
            with _announce_slow_build(say):
                result = run_program([*as_user, *make], limit_s=BUILD_TIMEOUT_S)
    except OSError as error:
        raise RunError(f"make: {error.strerror}; to install make, run sudo tools/deps.sh run") from error
    if result.status != 0:
        lines = [line for line in (result.complaint or result.text).splitlines() if line.strip()]
        reason = next(
            (line for line in lines if "error" in line or "missing" in line), lines[0] if lines else "failed"
        )
        raise RunError(
            f"build: {reason.strip()}; run make for all messages, sudo tools/deps.sh run for missing packages"
        )


def _lock(file: IO[bytes], say: Callable[[str], None] | None) -> None:
    """Wait until no other build holds the file's lock, then lock it. Raises RunError after BUILD_TIMEOUT_S.

    `say` names the process that holds the lock if the wait takes longer than SILENT_TIME_S.
    """
    began_s, announced = time.monotonic(), False
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waited_s = time.monotonic() - began_s
        if waited_s > BUILD_TIMEOUT_S:
            raise RunError(
                f"{file.name}: locked for {BUILD_TIMEOUT_S:g} s by {_holder(file)}; end that process first"
            )
        if waited_s > SILENT_TIME_S and not announced and say is not None:
            say(f"{file.name}: waiting for {_holder(file)}, which builds here (Ctrl-C ends the wait)")
            announced = True
        time.sleep(LOCK_RETRY_S)


def _holder(file: IO[bytes]) -> str:
    """Return the process that holds a file's lock, as text for messages. Reads /proc/locks."""
    status = os.fstat(file.fileno())
    name = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    for line in Path("/proc/locks").read_text(encoding="ascii").splitlines():
        words = line.split()
        if words[1:2] == ["FLOCK"] and words[5] == name:
            try:
                comm = Path(f"/proc/{words[4]}/comm").read_text(errors="replace").strip()
            except OSError:
                break
            return f"process {words[4]} ({comm})"
    return "another process"


@contextmanager
def _announce_slow_build(say: Callable[[str], None] | None) -> Iterator[None]:
    """Print a line with `say` if the body of the `with` takes longer than SILENT_TIME_S."""
    timer = Timer(SILENT_TIME_S, say or str, ["building programs whose sources changed (make)"])
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


# Commit of a tree, and True if the tree differs from the commit. None means unknown.
Revision = tuple[str | None, bool | None]


@dataclass(frozen=True)
class BuildInfo:
    """Origin of an installed tree, written by tools/built_of.sh: commit, machine and clang version.

    `changed`: True if the source tree differed from the commit.
    """

    commit: str | None = None
    changed: bool | None = None
    machine: str | None = None
    clang: str | None = None


def git_revision(tree: Path = paths.ROOT) -> Revision:
    """Return the revision of a tree, or (None, None) if there is no git or no repository."""
    return start_git_revision(tree)()


def start_git_revision(tree: Path = paths.ROOT) -> Callable[[], Revision]:
    """Start git, which may take a while to read every file; return a function that waits for the revision."""
    if paths.INSTALLED and tree == paths.ROOT:  # a repository around it belongs to another project
        build_info = read_build_info()
        return lambda: (build_info.commit, build_info.changed)
    status_answer = start_git(tree, "status", "--porcelain=v2", "--branch", "-uno")

    @functools.cache
    def answer() -> Revision:
        lines = (status_answer() or "").splitlines()
        commit = next((line.split()[-1] for line in lines if line.startswith("# branch.oid ")), "(initial)")
        if commit == "(initial)":
            return None, None
        return commit[:12], any(not line.startswith("# ") for line in lines)

    return answer


def read_build_info() -> BuildInfo:
    """Read the file that states an installed tree's origin. All fields are None if it is missing."""
    # The help of a tree without msgspec needs this file.
    try:
        values = json.loads(files.read(paths.BUILT_OF))
    except (OSError, ValueError):
        values = None
    if not isinstance(values, dict):
        return BuildInfo()
    return BuildInfo(values.get("commit"), values.get("changed"), values.get("for"), values.get("by clang"))


def start_git(tree: Path, *arguments: str) -> Callable[[], str | None]:
    """Start git; return a function that waits for git and returns its output, or None if git failed.

    git runs as the owner of the tree, because the tree's git configuration may start programs. git neither
    starts a file system monitor nor writes its index.
    """
    owner = owner_of(tree)
    as_owner = [] if owner is None else owner.argv()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_OPTIONAL_LOCKS": "0"} | ({} if owner is None else environment_of(owner))
    git = [*as_owner, "git", "-C", str(tree), "-c", f"safe.directory={tree}", "-c", "core.fsmonitor="]
    try:
        program = StartedProgram([*git, *arguments], environment=environment)
    except OSError:
        return lambda: None

    def answer() -> str | None:
        try:
            result = program.wait_for_output()
        except LimitError as error:  # a run also works without the revision
            print(one_line(f"copyscope: {error}"), file=sys.stderr)
            return None
        return result.text.strip() if result.status == 0 else None

    return answer
