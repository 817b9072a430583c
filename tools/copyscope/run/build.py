"""Brings what is compiled up to date before a run, as the user who owns the tree."""

import fcntl
import functools
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import IO, Any

from copyscope import paths
from copyscope.asking import Asked, LimitError, ask
from copyscope.errors import RunError
from copyscope.escaping import one_line
from copyscope.files import regular_file
from copyscope.topology import environment_of, owner_of

# Make takes less to find that nothing is to do.
SILENT_S = 2.0
# A whole build takes a minute, and on an emulated machine several.
BUILD_S = 900.0
LOCK_EVERY_S = 0.1


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
            _lock(lock, say)
            with _said_when_late(say):
                done = ask([*as_user, *make], limit_s=BUILD_S)
    except OSError as error:
        raise RunError(f"make: {error.strerror}: install it: sudo tools/deps.sh run") from error
    if done.status != 0:
        said = [line for line in (done.complaint or done.text).splitlines() if line.strip()]
        reason = next(
            (line for line in said if "error" in line or "missing" in line), said[0] if said else "failed"
        )
        raise RunError(
            f"build: {reason.strip()}: run make to see it all, sudo tools/deps.sh run for the packages"
        )


def _lock(file: IO[bytes], say: Callable[[str], None] | None) -> None:
    """Wait for it; who has it is said when that takes longer than SILENT_S. Raises RunError."""
    began_s, said = time.monotonic(), False
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            waited_s = time.monotonic() - began_s
        if waited_s > BUILD_S:
            raise RunError(f"{file.name}: locked for {BUILD_S:g} s by {_holder(file)}: end that first")
        if waited_s > SILENT_S and not said and say is not None:
            say(f"{file.name}: locked by {_holder(file)}, which builds here: waiting (Ctrl-C ends this)")
            said = True
        time.sleep(LOCK_EVERY_S)


def _holder(file: IO[bytes]) -> str:
    """The process that has locked it, by proc_locks(5)."""
    found = os.fstat(file.fileno())
    name = f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"
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
def _said_when_late(say: Callable[[str], None] | None) -> Iterator[None]:
    late = Timer(SILENT_S, say or str, ["building what has changed, or was never built (make)"])
    late.start()
    try:
        yield
    finally:
        late.cancel()


Revision = tuple[str | None, bool | None]


def git_revision(tree: Path = paths.ROOT) -> Revision:
    """(commit, whether the tree differs from it); (None, None) outside a repository or without git."""
    return ask_revision(tree)()


def ask_revision(tree: Path = paths.ROOT) -> Callable[[], Revision]:
    """The same, asked for now: git looks at every file. What is returned waits for its answer."""
    if paths.INSTALLED and tree == paths.ROOT:  # a repository around it is another's
        known = built_of()
        return lambda: (known.get("commit"), known.get("changed"))
    asked = ask_git(tree, "status", "--porcelain=v2", "--branch", "-uno")

    @functools.cache
    def answer() -> Revision:
        said = (asked() or "").splitlines()
        commit = next((line.split()[-1] for line in said if line.startswith("# branch.oid ")), "(initial)")
        if commit == "(initial)":
            return None, None
        return commit[:12], any(not line.startswith("# ") for line in said)

    return answer


def built_of() -> dict[str, Any]:
    """What an installed tree says that it was built of; empty where it says nothing."""
    try:
        found = json.loads(regular_file.read(paths.BUILT_OF))
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def ask_git(tree: Path, *question: str) -> Callable[[], str | None]:
    """Asked for now; what is returned waits for what git answers, None where it cannot.

    As the owner of the tree, who may have git run programs, and without those, and without writing its index.
    """
    owner = owner_of(tree)
    as_owner = [] if owner is None else owner.argv()
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment |= {"GIT_OPTIONAL_LOCKS": "0"} | ({} if owner is None else environment_of(owner))
    asked = [*as_owner, "git", "-C", str(tree), "-c", f"safe.directory={tree}", "-c", "core.fsmonitor="]
    try:
        asking = Asked([*asked, *question], environment=environment)
    except OSError:
        return lambda: None

    def answer() -> str | None:
        try:
            said = asking.answer()
        except LimitError as error:  # a run does not need it
            print(one_line(f"copyscope: {error}"), file=sys.stderr)
            return None
        return said.text.strip() if said.status == 0 else None

    return answer
