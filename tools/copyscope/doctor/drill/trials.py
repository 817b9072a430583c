# SPDX-License-Identifier: GPL-2.0-only
"""Trials of the drill: send a buffer, rewrite it, and count the rewritten bytes that arrive.

Each trial runs `traffic send --rewrite` with one send method over one path.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from copyscope.base import paths
from copyscope.base.errors import RunError, UsageError
from copyscope.doctor.drill import copiers
from copyscope.doctor.drill.copiers import Copier, Stacks, StacksUnreadableError
from copyscope.machine.topology import LinkSettings, Side, TopologyError, open_topology
from copyscope.run.child import Child
from copyscope.taxonomy.taxonomy import Taxonomy

Result = Literal["by reference", "in part by reference", "copied before return", "late copy", "refused"]
Notified = Literal["copied", "zero-copy"] | None
FindCopier = Callable[[Sequence[Child], str], tuple[Copier | None, str | None]]

PATHS = ("lo", "veth", "tls")
BUFFER_BYTES = 16_384
TRIALS = 5
FILE_OPTION = "--file"
# Send method -> options of `traffic send`. If the last one is --file, the directory is appended.
WAYS: Mapping[str, tuple[str, ...]] = {
    "send": ("--impl", "one_copy"),
    "sendmsg": ("--impl", "one_copy", "--fields", "8"),
    "io_uring SEND": ("--impl", "uring_send"),
    "MSG_ZEROCOPY": ("--impl", "zero_copy"),
    "SEND_ZC": ("--impl", "uring_zc"),
    "sendfile, file": ("--impl", "sendfile", FILE_OPTION),
    "sendfile, memfd": ("--impl", "sendfile"),
    "splice, file": ("--impl", "sendfile", "--via", "splice", FILE_OPTION),
    "vmsplice": ("--impl", "vmsplice"),
}
# Page-aligned fields, because an unaligned field takes more of the send buffer than its bytes.
MESSAGE_OPTIONS = ("--size", str(BUFFER_BYTES), "--fields", "1", "--align", "page", "--working-set", "11")
# Moment of rewriting the last message -> options of `traffic send`: when the send call has returned, or when
# the message has arrived at the receiver's kernel. Ten messages fill the receive buffer, so that the eleventh
# is still in the sender's socket when the call returns.
REWRITE_OPTIONS: Mapping[str, tuple[str, ...]] = {
    "returned": ("--messages", "11", "--rewrite", "returned"),
    "arrived": ("--messages", "1", "--rewrite", "arrived"),
}
# All messages fit into the send buffer, and one fits into the receive buffer.
SEND_BUFFER, RECEIVE_BUFFER = ("--sndbuf", "208K"), ("--rcvbuf", "32K")
REASON_NOTHING_COPIED, REASON_NOT_SEEN = "nothing was copied", "no function of the kernel was seen copying it"


@dataclass(frozen=True)
class DrillRow:
    """Outcome of one send method on one path."""

    way: str
    path: str
    result: Result
    bytes: int
    changed_at_once_bytes: int | None  # new bytes received after rewriting when the call had returned
    changed_bytes: int | None  # new bytes received after rewriting when all had arrived
    arrived_after_us: int | None
    notified: Notified
    reason: str | None  # why the method was refused
    copied_by: Copier | None = None
    copied_by_reason: str | None = None  # why the copier is unknown


@dataclass(frozen=True)
class OpenPath:
    """A network path, ready for use. `command` returns the command that runs a program on one side of it."""

    name: str
    address: str
    command: Callable[[Side, Sequence[str]], list[str]]
    options: tuple[str, ...] = ()  # options of `traffic send` and `traffic recv` for this path


def run_all(directory: Path, path_names: Sequence[str]) -> list[DrillRow]:
    """Try all methods on the paths. Creates files to send in `directory`. veth and network cards need root.

    If a path in PATHS cannot be created, its rows say why. For any other path, raises TopologyError.
    """
    rows: list[DrillRow] = []
    with copier_finder() as find:
        for name in path_names:
            try:
                with open_path(name) as path:
                    rows += [try_way(way, path, directory, find) for way in WAYS]
            except TopologyError as error:
                if name not in PATHS:  # network cards that the user chose
                    raise
                rows += [_refused(way, name, str(error).removeprefix("--topology ")) for way in WAYS]
    return rows


@contextmanager
def open_path(name: str) -> Iterator[OpenPath]:
    """Open the path `lo`, `tls` (kTLS over lo), `veth` or `nics:IFA,IFB`. Raises TopologyError."""
    if name in ("lo", "tls"):
        options = ("--tls", "1.3") if name == "tls" else ()
        yield OpenPath(name, "127.0.0.1", lambda _, argv: list(argv), options)
        return
    with open_topology(name, LinkSettings(), paths.XDP_OBJECT) as topology:
        yield OpenPath(topology.kind, topology.addresses["sender"], topology.command)


@contextmanager
def start_traffic(
    path: OpenPath, send: Sequence[str], receive: Sequence[str]
) -> Iterator[tuple[Child, Child]]:
    """Start and connect sender and receiver, which then wait for `go`. Raises RunError, UsageError."""
    traffic = str(paths.TRAFFIC)
    with ExitStack() as cleanup:

        def start(side: Side, *argv: str) -> Child:
            child = Child(side, path.command(side, [traffic, *argv, "--control", *path.options]))
            cleanup.callback(child.end)
            return child

        sender = start("sender", "send", "--listen", path.address, *send)
        port = str(sender.expect("listening")["port"])
        receiver = start("receiver", "recv", "--connect", path.address, "--port", port, *receive)
        receiver.expect("connected")
        sender.expect("connected")
        yield sender, receiver


@contextmanager
def copier_finder() -> Iterator[FindCopier]:
    """Yield a finder: a function that finds which kernel function copies for a sender and receiver.

    It returns (copier, None), or (None, the reason why no copier was found).
    """
    taxonomy = Taxonomy.load()
    try:
        stacks = Stacks(copiers.hookable_functions(taxonomy), lambda name: taxonomy.find(name)[1] is not None)
    except StacksUnreadableError as unreadable:
        reason = str(unreadable)
        yield lambda _, result: (
            None,
            reason if result in copiers.ACCOUNTS_OF_RESULT else REASON_NOTHING_COPIED,
        )
        return

    def find(pair: Sequence[Child], result: str) -> tuple[Copier | None, str | None]:
        copier = copiers.find_copier(stacks, pair, result, taxonomy)
        reason = REASON_NOT_SEEN if result in copiers.ACCOUNTS_OF_RESULT else REASON_NOTHING_COPIED
        return copier, None if copier else reason

    with stacks:
        yield find


def try_way(way: str, path: OpenPath, directory: Path, find: FindCopier) -> DrillRow:
    """Try one method on one path TRIALS times. The trial in which the most bytes changed counts."""
    send = [*MESSAGE_OPTIONS, *WAYS[way], *((str(directory),) if WAYS[way][-1] == FILE_OPTION else ())]
    try:
        at_once = _trials(path, send, "returned")
        arrived = _trials(path, send, "arrived")
        result = judge(at_once.changed_bytes, arrived.changed_bytes)
        pinned = ("--cpus", str(copiers.sampled_cpu()))
        with start_traffic(path, [*send, *pinned], pinned) as pair:
            copied_by, copied_by_reason = find(pair, result)
    except (RunError, UsageError) as error:
        return _refused(way, path.name, _refusal_reason(error))
    return DrillRow(
        way=way,
        path=path.name,
        result=result,
        bytes=BUFFER_BYTES,
        changed_at_once_bytes=at_once.changed_bytes,
        changed_bytes=arrived.changed_bytes,
        arrived_after_us=round(arrived.report["arrived_ns"] / 1000),
        notified=summarise_notifications(arrived.report["zerocopy"]),
        reason=None,
        copied_by=copied_by,
        copied_by_reason=copied_by_reason,
    )


def judge(changed_at_once: int, changed: int) -> Result:
    """Return the result, given the number of bytes that changed in each kind of trial.

    `changed_at_once`: the buffer was rewritten when the send returned. `changed`: it was rewritten after its
    bytes had reached the receiver's kernel, so bytes that changed then were not copied.
    """
    if changed == BUFFER_BYTES:
        return "by reference"
    if changed:
        return "in part by reference"
    return "late copy" if changed_at_once else "copied before return"


def summarise_notifications(zerocopy: Mapping[str, int] | None) -> Notified:
    """Return "copied" if all zero-copy notifications report a copy, else "zero-copy"; None if none came."""
    if zerocopy is None or not zerocopy["completions"]:
        return None
    return "copied" if zerocopy["copied"] == zerocopy["completions"] else "zero-copy"


@dataclass(frozen=True)
class _Trials:
    """Outcome of several trials run at once. `report`: the sender's report."""

    changed_bytes: int  # in the trial with the most
    report: Mapping[str, Any]


def _trials(path: OpenPath, send: Sequence[str], moment: str) -> _Trials:
    """Send on TRIALS connections and rewrite each one's last message. The receiver reads only afterwards."""
    threads = ("--threads", str(TRIALS))
    receive = [*threads, *RECEIVE_BUFFER, "--rewrite"]
    with start_traffic(path, [*send, *threads, *SEND_BUFFER, *REWRITE_OPTIONS[moment]], receive) as (
        sender,
        receiver,
    ):
        sender.ask("go", "going")
        sent = sender.expect("finished")
        received = receiver.ask(f"settle {sent['bytes']}", "mark")
        report = sender.ask("stop", "report")
    for row in received["rewritten"]:
        if row["old_bytes"] + row["new_bytes"] != BUFFER_BYTES:
            raise RunError(f"{BUFFER_BYTES} bytes were sent, but other bytes arrived: {row}")
    return _Trials(max(row["new_bytes"] for row in received["rewritten"]), report)


def _refusal_reason(error: Exception) -> str:
    """Return an error from the traffic program, without the program's name and advice about options."""
    return re.sub(r"^(traffic (send|recv)|sender|receiver): |[:,]? (or )?(use|leave) --.*$", "", str(error))


def _refused(way: str, path: str, reason: str) -> DrillRow:
    return DrillRow(
        way, path, "refused", BUFFER_BYTES, None, None, None, None, reason, None, REASON_NOTHING_COPIED
    )


def list_changes(rows: list[DrillRow], expected: Mapping[tuple[str, str], str]) -> list[str]:
    """Return a line for each result that differs from the one expected. Keys of `expected`: (way, path)."""
    row_of = {(row.way, row.path): row for row in rows}
    lines = []
    for (way, path), old_result in expected.items():
        row = row_of.get((way, path))
        new_result = "not tried" if row is None else row.result + (f" ({row.reason})" if row.reason else "")
        if row is None or row.result != old_result:
            lines.append(f"{way} over {path}: was {old_result}, is {new_result}")
    return lines
