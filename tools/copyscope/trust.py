"""What root runs and imports here belongs to root or to whoever called sudo, and nobody else may write it.

Under sudo a tree that a third user may write in would be that user's way to root. bin/copyscope runs this by
the system's Python before the environment's, and before anything else of the package; so the standard library
only, and without pathlib, which takes as long as Python itself. What is a link is looked at where it leads,
and on its whole way there.
"""
# ruff: noqa: PTH115, PTH116, PTH118, PTH120

import signal

if __name__ == "__main__":
    # Ctrl-C ends it without a word; bin/copyscope has it wait until here.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])

import errno
import os
import stat
import sys
from collections.abc import Iterator, Mapping, Sequence

# All of ours that is run, compiled, imported or read to say what is run.
OURS = (".output", "Makefile", "bin", "bpf", "experiments", "src", "tools")
# Of installed packages the directories: their files have the mode of the umask that these have, too.
INSTALLED = ".venv"
# Root may say so of a tree that is neither's, as in a container or a guest; sudo does not pass it on.
SAYS_SO = "COPYSCOPE_TRUST_UID"
LINKS_MAX = 40  # as the kernel: MAXSYMLINKS
# The entries of posix_acl_xattr_header, include/uapi/linux/posix_acl_xattr.h: tag, permissions, id.
ACL, ACL_HEAD_BYTES, ACL_ENTRY_BYTES = "system.posix_acl_access", 4, 8
ACL_USER, ACL_GROUP_OBJ, ACL_GROUP, MAY_WRITE = 0x02, 0x04, 0x08, 2
ACL_GROUPS = (ACL_GROUP_OBJ, ACL_GROUP)


def find_danger(
    root: str, environment: Mapping[str, str] | None = None, more: Sequence[str] = ()
) -> str | None:
    """One line that names the first thing of the tree that others may change; None: there is nothing.

    `more`: what else of the tree is run.
    """
    environment = os.environ if environment is None else environment
    users = {0} | {int(environment[key]) for key in ("SUDO_UID", SAYS_SO) if _is_number(environment.get(key))}
    try:
        for path, found, above in _everything(root, (*OURS, *more)):
            if found.st_uid not in users:
                return (
                    f"{path}: belongs to user {found.st_uid}, neither root nor the user of sudo: call it "
                    "with sudo as that user, or chown it"
                )
            # In a sticky directory (/tmp) nobody renames what is another's.
            if above and found.st_mode & stat.S_ISVTX:
                continue
            if _others_may_write(path, found, users):
                return f"{path}: others may write it, and root would run it: {_remedy(path, root)}"
    except OSError as error:
        return f"{error.filename}: {error.strerror}: cannot check what root would run"
    return None


def _remedy(path: str, root: str) -> str:
    inside = path == root or path.startswith(f"{root}/")
    what = f"-R go-w {root}" if inside else f"go-w {path}"
    return f"chmod {what}" + (f", setfacl -b {path}" if _acl(path) else "")


def _is_number(text: str | None) -> bool:
    return text is not None and text.isascii() and text.isdecimal() and len(text) < 11


Found = tuple[str, os.stat_result, bool]  # above: a directory that only leads there


def _everything(root: str, names: Sequence[str]) -> Iterator[Found]:
    # Who may rename a directory above may put another tree in the place of this one.
    yield from _way_to(root)
    seen: set[str] = set()
    for name in names:
        yield from _below(os.path.join(root, name), seen, files=True)
    yield from _below(os.path.join(root, INSTALLED), seen, files=False)


def _way_to(path: str) -> Iterator[Found]:
    """It, every directory that leads there, and every link on that way, with the way that this one goes."""
    parts = [part for part in path.split("/") if part]
    here, links_left = "/", LINKS_MAX
    yield here, os.stat(here), True
    while parts:
        name = parts.pop(0)
        here = os.path.dirname(here) if name == ".." else os.path.join(here, name) if name != "." else here
        try:
            found = os.lstat(here)
        except FileNotFoundError:  # who may make it there chooses what is run, in a sticky directory, too
            here = os.path.dirname(here)
            yield here, os.lstat(here), False
            return
        if not stat.S_ISLNK(found.st_mode):
            yield here, found, bool(parts)
            continue
        links_left -= 1
        if not links_left:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        yield here, found, True
        named = os.readlink(here)
        parts = [part for part in named.split("/") if part] + parts
        here = "/" if named.startswith("/") else os.path.dirname(here)


def _below(path: str, seen: set[str], *, files: bool) -> Iterator[Found]:
    """It, and all in it, or only directories and links; what links lead to, each once."""
    waiting = [path]
    while waiting:
        here = waiting.pop()
        try:
            found = os.lstat(here)
        except FileNotFoundError:  # not built yet
            continue
        if stat.S_ISLNK(found.st_mode):
            yield from _way_to(here)
            waiting.append(os.path.realpath(here))
            continue
        yield here, found, False
        if not stat.S_ISDIR(found.st_mode) or here in seen:
            continue
        seen.add(here)
        try:
            entries = list(os.scandir(here))
        except FileNotFoundError:  # a build in another terminal
            continue
        waiting += [
            one.path for one in entries if files or one.is_symlink() or one.is_dir(follow_symlinks=False)
        ]


def _others_may_write(path: str, found: os.stat_result, users: set[int]) -> bool:
    if stat.S_ISLNK(found.st_mode):  # a link has no mode, and its directory is looked at
        return False
    if found.st_mode & stat.S_IWOTH:
        return True
    # With an access control list these bits are its mask: without them it lets nobody write (acl(5)).
    if not found.st_mode & stat.S_IWGRP:
        return False
    entries = _acl(path) or [(ACL_GROUP_OBJ, 0)]
    if any(tag == ACL_USER and who not in users for tag, who in entries):
        return True
    groups = [who if tag == ACL_GROUP else found.st_gid for tag, who in entries if tag in ACL_GROUPS]
    return not all(_is_private_group(gid, users) for gid in groups)


def _acl(path: str) -> list[tuple[int, int]]:
    """(tag, user or group) of whom an access control list lets write; none where there is no such list."""
    try:
        data = os.getxattr(path, ACL)
    except OSError:
        return []
    entries = []
    for at in range(ACL_HEAD_BYTES, len(data) - ACL_ENTRY_BYTES + 1, ACL_ENTRY_BYTES):
        tag, permissions = (int.from_bytes(data[at + n : at + n + 2], "little") for n in (0, 2))
        if permissions & MAY_WRITE:
            entries.append((tag, int.from_bytes(data[at + 4 : at + 8], "little")))
    return entries


def _is_private_group(gid: int, users: set[int]) -> bool:
    """Root's, or one that has the name of its only member: with it a umask of 002 lets nobody in."""
    if gid == 0:
        return True
    import grp  # noqa: PLC0415 (only where a group may write at all)
    import pwd  # noqa: PLC0415

    try:
        group = grp.getgrgid(gid)
        names = {pwd.getpwuid(uid).pw_name for uid in users}
    except KeyError:
        return False
    return group.gr_name in names and set(group.gr_mem) <= {group.gr_name}


if __name__ == "__main__":
    danger = find_danger(sys.argv[1], more=sys.argv[2:])
    if danger is not None:
        sys.exit("copyscope: " + "".join(one if one.isprintable() else "?" for one in danger))
