"""A machine that has one side of a run: how it is reached, and how what was started there ends."""

from collections.abc import Mapping

from copyscope import paths
from copyscope.errors import UsageError
from copyscope.hosts.far import Far
from copyscope.hosts.host import Host
from copyscope.places import HERE
from copyscope.topology import Side

__all__ = ["Far", "Host", "hosts_of"]


def hosts_of(sender: str | None, receiver: str | None, tree: str | None = None) -> Mapping[Side, Host]:
    """The machine of each side; the one that is not named is this one. `tree`: copyscope's on the others."""
    there = tree or str(paths.ROOT)
    names: dict[Side, str] = {"sender": sender or HERE, "receiver": receiver or HERE}
    if names["sender"] == names["receiver"]:
        raise UsageError(
            f"--sender-at {sender} --receiver-at {receiver}: the same machine: use --topology instead"
        )
    return {side: Host() if name == HERE else Far(name, there) for side, name in names.items()}
