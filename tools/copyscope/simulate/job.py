"""What the guest is to do: the traffic's words, and the lines of /job (src/guest/init.c). Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from copyscope.errors import UsageError

ADDRESSES = {"veth": "10.99.0.1", "veth-xdp": "10.99.0.1", "nics": "10.99.0.1", "loopback": "127.0.0.1"}
MODULE = {"veth": "veth", "veth-xdp": "veth", "nics": "e1000"}
# Each packet is copied out on its own: nothing merges them.
BY_PACKET = ("nics", "veth-xdp")
FIRST_PORT = 7001
# So much is counted unless --messages says: enough that a page of bookkeeping is no line in a table.
COUNTED_BYTES = 8 << 20
COUNTED_MESSAGES = (16, 1024)
# Before it: until every buffer was used and the congestion window is open.
WARM_BYTES = 4 << 20
WARM_MESSAGES = (8, 1024)
# At 64 KiB a gigabyte, which takes two minutes.
MESSAGES_MAX = 16_384


@dataclass(frozen=True)
class Path:
    """The path between the two sides."""

    kind: str
    mtu: int | None = None
    offloads: tuple[tuple[str, str], ...] = ()

    def line(self) -> str:
        words = [f"network {self.kind}"]
        # Offloads first: some network cards refuse a large MTU otherwise.
        words += [f"{name}={value}" for name, value in self.offloads]
        words += [] if self.mtu is None else [f"mtu={self.mtu}"]
        return " ".join(words)


@dataclass(frozen=True)
class Measured:
    """One strategy at one size: the words of its two programs, without addresses, ports and processors."""

    impl: str
    size_bytes: int
    fields: int
    threads: int
    working_set_messages: int
    warm: int
    messages: int
    send: tuple[str, ...]
    receive: tuple[str, ...]
    # How else it was sent: the keys of a record's workload that a simulation can vary.
    how: Mapping[str, Any] = field(default_factory=dict)

    @property
    def delivered_bytes(self) -> int:
        return self.threads * self.messages * self.size_bytes


def counts(size_bytes: int, messages: int | None) -> tuple[int, int]:
    """(messages that warm up, messages that are counted)."""
    warm = _within(WARM_BYTES // size_bytes, WARM_MESSAGES)
    return warm, _within(COUNTED_BYTES // size_bytes, COUNTED_MESSAGES) if messages is None else messages


def _within(value: int, bounds: tuple[int, int]) -> int:
    return min(max(value, bounds[0]), bounds[1])


def check_path(kind: str) -> None:
    """Raises UsageError for a path that the guest does not have."""
    if kind not in ADDRESSES:
        raise UsageError(f"--topology: {kind}: a simulated machine has {', '.join(ADDRESSES)}")


def of_command(words: Sequence[str], server: Sequence[str] = ()) -> str:
    """The lines of /job for a command, and a server beside it; a blank within a word is another byte."""
    lines = ["network loopback"]
    for name, its_words in (("server", server), ("command", words)):
        if its_words:
            rest = [word.replace(" ", "\x1f") for word in its_words[1:]]
            lines.append(" ".join([name, f"/{name}", *rest]))
    return "\n".join(lines) + "\n"


def _cpus(first: int, threads: int, vcpus: int) -> str:
    """Every second processor, as many as there are threads: those between are the other side's."""
    return ",".join(map(str, list(range(first, vcpus, 2))[:threads]))


def text(
    path: Path,
    measured: Sequence[Measured],
    modules: Sequence[str],
    vcpus: int,
    seed: int,
    *,
    exact: bool = True,
) -> str:
    """The lines of /job. `modules`: those that this kernel has as files; others are built in.

    Not `exact`: the time in which the receiver reads the rest is not known, so that it says when it has.
    """
    needed = MODULE.get(path.kind)
    lines = [f"module {needed}"] if needed in modules else []
    lines.append(path.line())
    address = ADDRESSES[path.kind]
    for number, one in enumerate(measured):
        port = str(FIRST_PORT + number)
        receive = ["/traffic", "recv", *one.receive, "--connect", address, "--port", port]
        send = ["/traffic", "send", *one.send, "--listen", address, "--port", port]
        send += ["--messages", str(one.messages), "--simulated", str(one.warm), "--seed", str(seed)]
        if not exact:
            send.append("--answered")
            warm, rest = one.warm * one.size_bytes, one.messages * one.size_bytes
            receive += [word for total in (warm, warm + rest) if total for word in ("--answer", str(total))]
        lines.append(f"measure {one.impl}/{one.size_bytes} {port}")
        for name, words, first in (("recv", receive, min(1, vcpus - 1)), ("send", send, 0)):
            lines.append(" ".join([name, *words, "--cpus", _cpus(first, one.threads, vcpus)]))
    for line in lines:
        if "\n" in line or len(line) > 4000:
            raise UsageError(f"--simulate: {line[:40]}...: too long for the guest")
    return "\n".join(lines) + "\n"
