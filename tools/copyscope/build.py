"""Brings what is compiled up to date before a run, as the user who owns the tree."""

import fcntl
import os
import subprocess

from copyscope import paths
from copyscope.errors import RunError
from copyscope.topology import invoking_user


def build_if_stale() -> None:
    """`make artifacts`; quiet when nothing is to do. Raises RunError with the compiler's first complaint.

    In a tree where this user may not write nothing is built: what is there is used.
    """
    if not os.access(paths.ROOT, os.W_OK):
        return
    make = ["make", "--silent", "--no-print-directory", "-C", str(paths.ROOT), "artifacts"]
    try:
        # Under sudo the tree stays the invoking user's; one of root's (as in a container) is built by root.
        owner = paths.ROOT.stat().st_uid
        as_user = invoking_user().argv() if os.geteuid() == 0 and owner != 0 else []
        # Two profiles at once must not build at once; the lock goes with the file.
        with (paths.ROOT / "Makefile").open("rb") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            result = subprocess.run([*as_user, *make], capture_output=True, text=True, check=False)
    except OSError as error:
        raise RunError(f"make: {error.strerror}: install it: sudo tools/deps.sh run") from error
    if result.returncode != 0:
        said = [line for line in (result.stderr or result.stdout).splitlines() if line.strip()]
        reason = next(
            (line for line in said if "error" in line or "missing" in line), said[0] if said else "failed"
        )
        raise RunError(
            f"build: {reason.strip()}: run make to see it all, sudo tools/deps.sh run for the packages"
        )


def git_revision() -> tuple[str | None, bool | None]:
    """(commit, whether the tree differs from it); (None, None) outside a repository or without git."""
    git = ["git", "-C", str(paths.ROOT), "-c", f"safe.directory={paths.ROOT}"]
    try:
        head = subprocess.run(
            [*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=False
        )
        if head.returncode != 0:
            return None, None
        status = subprocess.run(
            [*git, "status", "--porcelain", "-uno"], capture_output=True, text=True, check=False
        )
    except OSError:
        return None, None
    return head.stdout.strip(), bool(status.stdout.strip())
