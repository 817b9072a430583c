# SPDX-License-Identifier: GPL-2.0-only
"""Known servers and languages, from servers.toml. The top of that file explains the keys. Pure."""

import re
import tomllib
from collections.abc import Collection, Iterable
from functools import cache
from pathlib import Path, PurePath
from typing import Literal

from msgspec import Struct, convert

from copyscope.record.measured import Measured
from copyscope.record.watched import UserCode

FILE = Path(__file__).with_name("servers.toml")

Setting = Literal[
    "zerocopy",
    "sendfile",
    "splice",
    "io_uring",
    "larger_sends",
    "larger_relays",
    "batched_answers",
    "one_send",
    "nodelay",
    "udp_segment",
    "fewer_user_copies",
    "ktls",
    "larger_receives",
    "mapped_receives",
    "receive_in_place",
]
# Directories of programs that a distribution installs. Their users cannot change the code.
PACKAGED = ("/usr/bin/", "/usr/sbin/", "/usr/lib", "/bin/", "/sbin/", "/snap/", "/nix/store/")


class Server(Struct, frozen=True, forbid_unknown_fields=True):
    """A known server or language: a table of servers.toml."""

    name: str
    processes: str
    code: str
    settings: dict[Setting, str] = {}
    serves_files: bool = False
    over_tls: str | None = None
    hidden: str | None = None

    def runs_as(self, process: str) -> bool:
        """Return True if the server runs in processes with this name."""
        return re.fullmatch(self.processes, process) is not None

    def has_code(self, name: str) -> bool:
        """Return True if a file or function of the server has this name."""
        return re.fullmatch(self.code, name) is not None


class ServerFile(Struct, forbid_unknown_fields=True):
    """The content of the file servers.toml."""

    servers: list[Server]


@cache
def known_servers() -> list[Server]:
    """Return the servers in the order of the file. The last one stands for any other program."""
    return convert(tomllib.loads(FILE.read_text(encoding="utf-8")), ServerFile).servers


def server_of(raw: Measured) -> Server:
    """Identify a watched program's server from its process names, or from its code or language."""
    watched, servers = raw.watched, known_servers()
    processes = {watched.comm or "", *(process.comm for process in watched.pids)}
    rows = [row for row in raw.user_code or [] if row.samples]
    code = {PurePath(row.file).name for row in rows}
    code |= {row.symbol for row in raw.samples if row.side == "target" and row.category == "gather"}
    languages = {row.made_with for row in rows}
    name = next(iter(_packaged_programs(rows, processes)), None)
    candidates = (
        *(server for server in servers if any(map(server.runs_as, processes))),
        *(server for server in servers if any(map(server.has_code, code))),
        *(server for server in servers if server.name in languages),
        *([Server(name, processes=re.escape(name), code="(?!)")] if name else []),
        servers[-1],
    )
    return candidates[0]


def _packaged_programs(rows: Iterable[UserCode], processes: Collection[str]) -> list[str]:
    """Return the names of processes that run a program packaged by the Linux distribution."""
    files = [PurePath(row.file).name for row in rows if row.file.startswith(PACKAGED)]
    # The kernel cuts the name of a process to 15 characters.
    return [name for name in files if name[:15] in processes]
