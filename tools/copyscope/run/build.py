"""Brings what is compiled up to date before a run, as the user who owns the tree."""

import fcntl
import functools
import os
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

from copyscope import paths
from copyscope.errors import RunError
from copyscope.topology import environment_of, owner_of

# Make takes less to find that nothing is to do.
SILENT_S = 2.0


def build_if_stale(say: Callable[[str], None] | None = None, targets: Sequence[str] = ("artifacts",)) -> None:
    """`make artifacts`, or other targets; `say` is told when that takes longer than SILENT_S.

    Raises RunError with the compiler's first complaint.

    In a tree where this user may not write, or that was installed, nothing is built: what is there is used.
    """
    if paths.INSTALLED or not os.access(paths.ROOT, os.W_OK):
        return
    make = ["make", "--silent", "--no-print-directory", "-C", str(paths.ROOT), *targets]
    try:
        # Under sudo the tree stays its owner's; one of root's (as in a container) is built by root.
        owner = owner_of(paths.ROOT)
        as_user = [] if owner is None else owner.argv()
        # Two profiles at once must not build at once; the lock goes with the file.
        with (paths.ROOT / "Makefile").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            status, said = _run([*as_user, *make], say)
    except OSError as error:
        raise RunError(f"make: {error.strerror}: install it: sudo tools/deps.sh run") from error
    if status != 0:
        reason = next(
            (line for line in said if "error" in line or "missing" in line), said[0] if said else "failed"
        )
        raise RunError(
            f"build: {reason.strip()}: run make to see it all, sudo tools/deps.sh run for the packages"
        )


def _run(argv: list[str], say: Callable[[str], None] | None) -> tuple[int, list[str]]:
    """Its status, and the lines that it printed: its complaints, if it had any."""
    with subprocess.Popen(
        argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace"
    ) as building:
        try:
            output, errors = building.communicate(timeout=SILENT_S)
        except subprocess.TimeoutExpired:
            if say is not None:
                say("building what has changed, or was never built (make)")
            output, errors = building.communicate()
    return building.returncode, [line for line in (errors or output).splitlines() if line.strip()]


Revision = tuple[str | None, bool | None]


def git_revision(tree: Path = paths.ROOT) -> Revision:
    """(commit, whether the tree differs from it); (None, None) outside a repository or without git."""
    return ask_revision(tree)()


def ask_revision(tree: Path = paths.ROOT) -> Callable[[], Revision]:
    """The same, asked for now: git looks at every file. What is returned waits for its answer."""
    asked = ask_git(tree, "status", "--porcelain=v2", "--branch", "-uno")

    @functools.cache
    def answer() -> Revision:
        said = (asked() or "").splitlines()
        commit = next((line.split()[-1] for line in said if line.startswith("# branch.oid ")), "(initial)")
        if commit == "(initial)":
            return None, None
        return commit[:12], any(not line.startswith("# ") for line in said)

    return answer


def git(tree: Path, *question: str) -> str | None:
    """What git answers; None where it cannot."""
    return ask_git(tree, *question)()


def ask_git(tree: Path, *question: str) -> Callable[[], str | None]:
    """The same, asked for now: what is returned waits for the answer.

    As the owner of the tree, who may have git run programs, and without those, and without writing its index.
    """
    owner = owner_of(tree)
    as_owner = [] if owner is None else owner.argv()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_OPTIONAL_LOCKS": "0"} | ({} if owner is None else environment_of(owner))
    asked = [*as_owner, "git", "-C", str(tree), "-c", f"safe.directory={tree}", "-c", "core.fsmonitor="]
    try:
        asking = subprocess.Popen(
            [*asked, *question],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            errors="replace",  # with core.quotePath off it names files as they are
            env=environment,
        )
    except OSError:
        return lambda: None

    def answer() -> str | None:
        said, _ = asking.communicate()
        return said.strip() if asking.returncode == 0 else None

    return answer
