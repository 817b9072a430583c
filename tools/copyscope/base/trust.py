# SPDX-License-Identifier: GPL-2.0-only
"""Check that only root and the user who called sudo can change the code that root is about to run.

If another user could write a file of the tree, that user could become root through copyscope. bin/copyscope
runs this file with the system's Python, before any other file of the tree. It therefore uses the standard
library only, without pathlib, whose import takes as long as starting Python. Links are followed, and every
directory on the way to their targets is checked.
"""
# ruff: noqa: PTH115, PTH116, PTH118, PTH120, PTH208

import signal

if __name__ == "__main__":
    # bin/copyscope blocks SIGINT until here, so that Ctrl-C ends this program without a traceback.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])

import errno
import os
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence

# Parts of the tree that are run, compiled or imported, or that say what is run.
CHECKED_NAMES = (".output", ".venv", "Makefile", "bin", "bpf", "experiments", "src", "tools")
# Environment variable with one more trusted user id, as in a container or a guest. sudo removes it.
TRUSTED_UID_VARIABLE = "COPYSCOPE_TRUST_UID"
LINKS_MAX = 40  # most symbolic links on the way to a file, as in the kernel (MAXSYMLINKS)
# Layout of posix_acl_xattr_header (include/uapi/linux/posix_acl_xattr.h); an entry has tag, permissions, id.
ACL_ATTRIBUTE, ACL_HEAD_BYTES, ACL_ENTRY_BYTES = "system.posix_acl_access", 4, 8
ACL_USER, ACL_GROUP_OBJ, ACL_GROUP, ACL_WRITE = 0x02, 0x04, 0x08, 2
ACL_GROUP_TAGS = (ACL_GROUP_OBJ, ACL_GROUP)


def find_danger(
    root: str, environment: Mapping[str, str] | None = None, more: Sequence[str] = ()
) -> str | None:
    """Return a message about the first path that an untrusted user could change, or None.

    `root`: the tree. `more`: further names in the tree to check.
    """
    environment = os.environ if environment is None else environment
    uid_variables = ("SUDO_UID", TRUSTED_UID_VARIABLE)
    private_by_gid: dict[int, bool] = {}
    users = {0} | {int(environment[name]) for name in uid_variables if _is_number(environment.get(name))}
    try:
        for path, status, is_ancestor in _all_paths(root, (*CHECKED_NAMES, *more)):
            if status.st_uid not in users:
                return (
                    f"{path}: belongs to user {status.st_uid}, who is neither root nor the user of sudo: "
                    "run copyscope with sudo as that user, or chown it"
                )
            # In a sticky directory (/tmp) only the owner of a file may rename it.
            if is_ancestor and status.st_mode & stat.S_ISVTX:
                continue
            if _others_may_write(path, status, users, private_by_gid):
                return f"{path}: others may write this path, and root would run it: {_remedy(path, root)}"
    except OSError as error:
        return f"{error.filename}: {error.strerror}: cannot check the files that root would run"
    return None


def _remedy(path: str, root: str) -> str:
    """Return the commands that make a path safe. `root`: the tree."""
    inside = path == root or path.startswith(f"{root}/")
    chmod = f"chmod -R go-w {root}" if inside else f"chmod go-w {path}"
    return chmod + (f", setfacl -b {path}" if _writers_by_acl(path) else "")


def _is_number(text: str | None) -> bool:
    return text is not None and text.isascii() and text.isdecimal() and len(text) < 11


# Path, its lstat(2), and whether it only leads to a checked path (a directory above it, or a link).
CheckedPath = tuple[str, os.stat_result, bool]


def _all_paths(root: str, names: Sequence[str]) -> Iterator[CheckedPath]:
    """Yield all paths that determine what root runs from the tree `root`. `names`: parts of it to check."""
    # A user who can rename a directory above the tree could replace the tree.
    yield from _ancestors(root)
    visited: set[str] = set()
    for name in names:
        yield from _descendants(os.path.join(root, name), visited)


def _ancestors(path: str) -> Iterator[CheckedPath]:
    """Yield a path, every directory above it, every link on the way, and the directories above its target."""
    parts = [part for part in path.split("/") if part]
    here, links_left = "/", LINKS_MAX
    yield here, os.stat(here), True
    while parts:
        name = parts.pop(0)
        here = os.path.dirname(here) if name == ".." else os.path.join(here, name) if name != "." else here
        try:
            status = os.lstat(here)
        except FileNotFoundError:  # whoever may create this path decides what root runs
            here = os.path.dirname(here)
            yield here, os.lstat(here), False
            return
        if not stat.S_ISLNK(status.st_mode):
            yield here, status, bool(parts)
            continue
        links_left -= 1
        if not links_left:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        yield here, status, True
        target = os.readlink(here)
        parts = [part for part in target.split("/") if part] + parts
        here = "/" if target.startswith("/") else os.path.dirname(here)


def _descendants(path: str, visited: set[str]) -> Iterator[CheckedPath]:
    """Yield a path, all paths below it, and the targets of links.

    Directories in `visited` are skipped, and new directories are added to `visited`.
    """
    pending = [path]
    while pending:
        here = pending.pop()
        try:
            status = os.lstat(here)
        except FileNotFoundError:  # not built yet
            continue
        if stat.S_ISLNK(status.st_mode):
            yield from _ancestors(here)
            pending.append(os.path.realpath(here))
            continue
        yield here, status, False
        if not stat.S_ISDIR(status.st_mode) or here in visited:
            continue
        visited.add(here)
        try:
            pending += [os.path.join(here, name) for name in os.listdir(here)]
        except FileNotFoundError:  # removed by a build in another terminal
            continue


def _others_may_write(
    path: str, status: os.stat_result, users: set[int], private_by_gid: dict[int, bool]
) -> bool:
    """Return True if the mode or the access control list of a path lets a user outside `users` write.

    `status`: lstat(2) of the path. `private_by_gid`: groups that were looked up already; new ones are added.
    """
    if stat.S_ISLNK(status.st_mode):  # a link has no mode of its own; its directory is checked
        return False
    if status.st_mode & stat.S_IWOTH:
        return True
    # With an access control list, the group bits are its mask: without S_IWGRP it lets nobody write (acl(5)).
    if not status.st_mode & stat.S_IWGRP:
        return False
    writers = _writers_by_acl(path) or [(ACL_GROUP_OBJ, 0)]
    if any(tag == ACL_USER and uid not in users for tag, uid in writers):
        return True
    groups = [gid if tag == ACL_GROUP else status.st_gid for tag, gid in writers if tag in ACL_GROUP_TAGS]
    for gid in set(groups) - private_by_gid.keys():
        private_by_gid[gid] = _is_private_group(gid, users)
    return not all(private_by_gid[gid] for gid in groups)


def _writers_by_acl(path: str) -> list[tuple[int, int]]:
    """Return the users and groups that a path's access control list lets write, as pairs (tag, id).

    The result is empty if the path has no such list.
    """
    try:
        data = os.getxattr(path, ACL_ATTRIBUTE)
    except OSError:
        return []
    writers = []
    for start in range(ACL_HEAD_BYTES, len(data) - ACL_ENTRY_BYTES + 1, ACL_ENTRY_BYTES):
        tag, permissions = (int.from_bytes(data[start + n : start + n + 2], "little") for n in (0, 2))
        if permissions & ACL_WRITE:
            writers.append((tag, int.from_bytes(data[start + 4 : start + 8], "little")))
    return writers


def _is_private_group(gid: int, users: set[int]) -> bool:
    """Return True if a group is named after a user of `users`, and no user outside `users` belongs to it.

    Distributions that give each user a private group set umask 002, so that most files are group-writable. A
    user belongs to a group as a member (group(5)), or because it is the user's primary group (passwd(5)).
    """
    import grp  # noqa: PLC0415 (needed only if a group may write)
    import pwd  # noqa: PLC0415

    try:
        group = grp.getgrgid(gid)
        names = {pwd.getpwuid(uid).pw_name for uid in users}
    except KeyError:
        return False
    has_other_users = any(user.pw_gid == gid and user.pw_uid not in users for user in pwd.getpwall())
    return group.gr_name in names and set(group.gr_mem) <= names and not has_other_users


if __name__ == "__main__":
    danger = find_danger(sys.argv[1], more=sys.argv[2:])
    if danger is not None:
        sys.exit("copyscope: " + "".join(char if char.isprintable() else "?" for char in danger))
