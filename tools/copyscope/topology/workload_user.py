"""As whom the traffic runs: the invoking user, without any capability.

Root would hide the limit that makes real programs fail: the kernel does not account pinned zero-copy pages
against RLIMIT_MEMLOCK for a task with CAP_IPC_LOCK (mm_account_pinned_pages() in net/core/skbuff.c).
"""

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from copyscope.files.saving import invoking_ids

CAPABILITY_SETS = ("CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb")


@dataclass(frozen=True)
class WorkloadUser:
    uid: int
    gid: int
    known: bool  # the user has a passwd entry, so its supplementary groups can be looked up

    def argv(self) -> tuple[str, ...]:
        """The argv prefix that becomes this user for good: no capabilities, no set-uid way back."""
        groups = "--init-groups" if self.known else "--clear-groups"
        user = ("setpriv", f"--reuid={self.uid}", f"--regid={self.gid}", groups)
        return (*user, "--inh-caps=-all", "--bounding-set=-all", "--no-new-privs", "--")


def invoking_user(environment: Mapping[str, str] | None = None) -> WorkloadUser:
    """Who called sudo (SUDO_UID, SUDO_GID); without sudo the current user, still stripped of capabilities."""
    uid, gid = invoking_ids(environment) or (os.getuid(), os.getgid())
    return _user(uid, gid)


def _user(uid: int, gid: int) -> WorkloadUser:
    try:
        pwd.getpwuid(uid)
    except KeyError:
        return WorkloadUser(uid, gid, known=False)
    return WorkloadUser(uid, gid, known=True)


def owner_of(tree: Path) -> WorkloadUser | None:
    """As whom root runs what a tree of files brings along: its owner; None where that is nobody else."""
    found = tree.stat()
    if os.geteuid() != 0 or found.st_uid == 0:
        return None
    return _user(found.st_uid, found.st_gid)


def environment_of(user: WorkloadUser) -> dict[str, str]:
    """Whose home and name: sudo has put root's there."""
    if not user.known:
        return {"HOME": "/", "USER": str(user.uid), "LOGNAME": str(user.uid)}
    entry = pwd.getpwuid(user.uid)
    return {
        "HOME": entry.pw_dir,
        "USER": entry.pw_name,
        "LOGNAME": entry.pw_name,
        "SHELL": entry.pw_shell or "/bin/sh",
    }


def find_privileges(status: str) -> list[str]:
    """What is left of root in the text of /proc/PID/status: one entry per non-empty capability set."""
    fields = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    # An absent line counts as a privilege: never assume.
    sets = {name: fields.get(name, "?").strip() for name in CAPABILITY_SETS}
    left = [f"{name}={value}" for name, value in sets.items() if value.strip("0")]
    return left + ["NoNewPrivs=0"] * (fields.get("NoNewPrivs", "").strip() != "1")
