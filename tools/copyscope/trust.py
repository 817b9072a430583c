"""What root runs and imports here belongs to root or to whoever called sudo, and nobody else may write it.

Under sudo a tree that a third user may write in would be that user's way to root. bin/copyscope runs this by
the system's Python before the environment's, and before anything else of the package; so the standard library
only, and without pathlib, which takes as long as Python itself.
"""
# ruff: noqa: PTH110, PTH116, PTH118, PTH120

import os
import stat
import sys
from collections.abc import Iterator, Mapping

# All of ours that is run, compiled, imported or read to say what is run.
OURS = (".output", "Makefile", "bin", "bpf", "experiments", "src", "tools")
# Of installed packages the directories: their files have the mode of the umask that these have, too.
INSTALLED = ".venv"
# Root may say so of a tree that is neither's, as in a container or a guest; sudo does not pass it on.
SAYS_SO = "COPYSCOPE_TRUST_UID"


def find_danger(root: str, environment: Mapping[str, str] | None = None) -> str | None:
    """One line that names the first thing of the tree that others may change; None: there is nothing."""
    environment = os.environ if environment is None else environment
    users = {0} | {int(environment[key]) for key in ("SUDO_UID", SAYS_SO) if _is_number(environment.get(key))}
    for path, found in _everything(root):
        if found.st_uid not in users:
            return (
                f"{path}: belongs to user {found.st_uid}, neither root nor whoever called sudo: call it with "
                f"sudo as that user, or chown it"
            )
        if _others_may_write(found, users):
            return f"{path}: others may write it, and root would run it: chmod -R go-w {root}"
    return None


def _is_number(text: str | None) -> bool:
    return text is not None and text.isascii() and text.isdecimal() and len(text) < 11


def _everything(root: str) -> Iterator[tuple[str, os.stat_result]]:
    # Who may rename a directory above may put another tree in the place of this one.
    yield from _above(root)
    for name in OURS:
        yield from _below(os.path.join(root, name), files=True)
    yield from _below(os.path.join(root, INSTALLED), files=False)
    python = os.path.realpath(os.path.join(root, INSTALLED, "bin", "python3"))
    if os.path.exists(python):
        yield from _above(python)


def _above(path: str) -> Iterator[tuple[str, os.stat_result]]:
    """It, and every directory that it is in."""
    yield path, os.stat(path)
    if path != os.path.dirname(path):
        yield from _above(os.path.dirname(path))


def _below(path: str, *, files: bool) -> Iterator[tuple[str, os.stat_result]]:
    waiting = [path]
    while waiting:
        here = waiting.pop()
        try:
            found = os.stat(here, follow_symlinks=False)
        except FileNotFoundError:  # not built yet
            continue
        yield here, found
        if not stat.S_ISDIR(found.st_mode):
            continue
        for entry in os.scandir(here):
            if entry.is_dir(follow_symlinks=False):
                waiting.append(entry.path)
            elif files:
                try:
                    yield entry.path, entry.stat(follow_symlinks=False)
                except FileNotFoundError:  # a build in another terminal
                    continue


def _others_may_write(found: os.stat_result, users: set[int]) -> bool:
    if stat.S_ISLNK(found.st_mode):  # a link has no mode, and its directory is looked at
        return False
    # In a sticky directory (/tmp) nobody renames what is another's.
    if stat.S_ISDIR(found.st_mode) and found.st_mode & stat.S_ISVTX:
        return False
    if found.st_mode & stat.S_IWOTH:
        return True
    return bool(found.st_mode & stat.S_IWGRP) and not _is_private_group(found.st_gid, users)


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
    danger = find_danger(sys.argv[1])
    if danger is not None:
        sys.exit("copyscope: " + "".join(one if one.isprintable() else "?" for one in danger))
