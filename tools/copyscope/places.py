"""Where a command runs: on this machine, or on a host by OpenSSH. Pure.

How a host is reached (name, user, port, keys, jumps) is the business of the user's own ssh_config(5). Nothing
is asked: neither a password nor whether a host's key is the right one. One command is one connection.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

# What this machine is called among hosts.
HERE = "here"
CONNECT_S = 10
# A connection over which nothing comes for so long is cut: three questions without an answer.
ALIVE_S = 5
OPTIONS = {
    "BatchMode": "yes",
    "ConnectTimeout": str(CONNECT_S),
    "ServerAliveInterval": str(ALIVE_S),
    "ServerAliveCountMax": "3",
    # A master connection that the user has open is used; none is made, which would stay when we are gone.
    "ControlMaster": "no",
    # What ssh_config may ask for an interactive shell, and what would fail when many connect at once.
    "ClearAllForwardings": "yes",
    "ForwardAgent": "no",
    "ForwardX11": "no",
    "PermitLocalCommand": "no",
    "RemoteCommand": "none",
    "RequestTTY": "no",
    "LogLevel": "ERROR",
}


class Place(Protocol):
    """Where a command runs."""

    def argv(self, command: Sequence[str], *, become: bool = False) -> list[str]:
        """What is started here so that the command runs there; `become`: as root, by sudo without a word."""


@dataclass(frozen=True)
class Here:
    """This machine."""

    def argv(self, command: Sequence[str], *, become: bool = False) -> list[str]:
        return [*_sudo(become), *command]


@dataclass(frozen=True)
class OnHost:
    """A host as ssh(1) names it: an address, a name, an alias of ssh_config, with or without USER@.

    `through`: the socket of a master connection, which first() makes. Without it each command is one.
    """

    destination: str
    through: str | None = None

    def first(self, command: Sequence[str]) -> list[str]:
        """The command whose connection the others go through, for as long as it runs."""
        more = {"ControlMaster": "yes", "ControlPath": str(self.through), "ControlPersist": "no"}
        return self._ssh({**OPTIONS, **more, "ServerAliveInterval": "1"}, command)

    def argv(self, command: Sequence[str], *, become: bool = False) -> list[str]:
        if self.through is None:
            return self._ssh(OPTIONS, [*_sudo(become), *command])
        # Where the master has gone ssh would connect anew: it fails instead.
        more = {"ControlPath": self.through, "ProxyCommand": "false"}
        return self._ssh({**OPTIONS, **more}, [*_sudo(become), *command])

    def _ssh(self, settings: Mapping[str, str], command: Sequence[str]) -> list[str]:
        options = [word for name, value in settings.items() for word in ("-o", f"{name}={value}")]
        # ssh joins what follows with blanks, and a shell over there takes it apart again.
        return ["ssh", *options, "--", self.destination, shlex.join(command)]


def _sudo(become: bool) -> list[str]:
    return ["sudo", "-n", "--"] if become else []
