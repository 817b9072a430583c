"""The hosts of a fleet: a text file, one a line, `#` begins a comment. Pure."""

import re
from collections.abc import Sequence

from copyscope.errors import UsageError
from copyscope.escaping import visible
from copyscope.places import HERE, Here, InNamespace, OnHost, Place

# What it becomes is a word of ssh's command line and the name of a directory: no `-` in front, no `/`.
NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.@:\[\]-]{0,252}")
NAMESPACE = "netns:"
Hosts = dict[str, Place]


def parse(text: str, source: str) -> Hosts:
    """Each host by its name, in the file's order. Raises UsageError that names the line."""
    found: Hosts = {}
    for number, line in enumerate(text.splitlines(), 1):
        name = line.partition("#")[0].strip()
        if not name:
            continue
        where = f"{source}:{number}: {visible(name)}"
        if name.startswith("[") or " " in name or "\t" in name:
            raise UsageError(
                f"{where}: not one host: write one a line; user, port and keys stand in ~/.ssh/config; "
                "an inventory of ansible is read with --ansible"
            )
        if NAME.fullmatch(name) is None:
            raise UsageError(f"{where}: not a host name: letters, digits, . _ @ : - only")
        if name in found:
            raise UsageError(f"{where}: named twice: its records would be mixed: remove one")
        found[name] = place_of(name)
    if not found:
        raise UsageError(f"{source}: no host in it: write one a line")
    return found


def checked(names: Sequence[str], source: str) -> list[str]:
    """Names that ansible has read out of an inventory. Raises UsageError that names the first odd one."""
    for name in names:
        if NAME.fullmatch(name) is None:
            raise UsageError(f"{source}: {visible(name)}: not a host name: letters, digits, . _ @ : - only")
    return list(names)


def place_of(name: str) -> Place:
    """`here` is this machine, `netns:NAME` a namespace of it, all else is for ssh."""
    if name == HERE:
        return Here()
    if name.startswith(NAMESPACE):
        return InNamespace(name.removeprefix(NAMESPACE))
    return OnHost(name)
