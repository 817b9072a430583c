# SPDX-License-Identifier: GPL-2.0-only
"""Write the job for a simulated machine: measurements of copyscope's traffic, or a user's command."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from copyscope.base import files
from copyscope.base.errors import RunError, UsageError
from copyscope.base.spelling import alternatives
from copyscope.run.elf import PT_INTERP, ElfFile

# The first part writes the lines of /job, which src/guest/init.c reads: the network, and the words of each
# program. Pure.

# Address of the sender on each network path.
ADDRESSES = {"veth": "10.99.0.1", "veth-xdp": "10.99.0.1", "nics": "10.99.0.1", "loopback": "127.0.0.1"}
MODULE_OF_KIND = {"veth": "veth", "veth-xdp": "veth", "nics": "e1000"}
# Network paths on which each packet is copied to the receiver separately, because packets are not merged.
KINDS_BY_PACKET = ("nics", "veth-xdp")
FIRST_PORT = 7001
# Number of bytes to count without --messages, large enough to hide a page of bookkeeping in a table; and
# limits of the number of messages.
COUNTED_BYTES = 8 << 20
COUNTED_MESSAGES = (16, 1024)
# Number of bytes to send before the count, until every buffer has been used and the congestion window is
# open; and limits of the number of messages.
WARM_BYTES = 4 << 20
WARM_MESSAGES = (8, 1024)
# Maximum number of messages of a measurement: 1 GiB in messages of 64 KiB takes two minutes.
MESSAGES_MAX = 16_384


@dataclass(frozen=True)
class GuestPath:
    """Network path between sender and receiver in the guest."""

    kind: str
    mtu: int | None = None
    offloads: tuple[tuple[str, str], ...] = ()

    def line(self) -> str:
        """Return the line of /job that creates the path."""
        words = [f"network {self.kind}"]
        # Offloads first: some network cards refuse a large MTU otherwise.
        words += [f"{name}={value}" for name, value in self.offloads]
        words += [] if self.mtu is None else [f"mtu={self.mtu}"]
        return " ".join(words)


@dataclass(frozen=True)
class GuestMeasurement:
    """Measurement of one strategy at one message size.

    warm, messages: number of messages before counting starts, and of counted messages
    send, receive: arguments of sender and receiver, without addresses, ports and processors
    """

    impl: str
    size_bytes: int
    fields: int
    threads: int
    working_set_messages: int
    warm: int
    messages: int
    send: tuple[str, ...]
    receive: tuple[str, ...]
    # Further keys of a record's workload that a simulation can vary.
    how: Mapping[str, Any] = field(default_factory=dict)

    @property
    def delivered_bytes(self) -> int:
        return self.threads * self.messages * self.size_bytes


def message_counts(size_bytes: int, messages: int | None) -> tuple[int, int]:
    """Return the number of messages before counting starts, and the number to count.

    `messages`: value of --messages, or None.
    """
    warm = _clamp(WARM_BYTES // size_bytes, WARM_MESSAGES)
    return warm, _clamp(COUNTED_BYTES // size_bytes, COUNTED_MESSAGES) if messages is None else messages


def _clamp(value: int, bounds: tuple[int, int]) -> int:
    return min(max(value, bounds[0]), bounds[1])


def check_path(kind: str) -> None:
    """Raise UsageError for a value of --topology that the guest does not support."""
    if kind not in ADDRESSES:
        raise UsageError(
            f"--topology {kind}: not in a simulated machine; choose {alternatives(tuple(ADDRESSES))}"
        )


def command_text(words: Sequence[str], server: Sequence[str] = ()) -> str:
    """Return the text of /job for a command and an optional server.

    A space in an argument is written as byte 0x1f.
    """
    lines = ["network loopback"]
    for name, command_words in (("server", server), ("command", words)):
        if command_words:
            arguments = [word.replace(" ", "\x1f") for word in command_words[1:]]
            lines.append(" ".join([name, f"/{name}", *arguments]))
    return "\n".join(lines) + "\n"


def _cpus(first: int, threads: int, vcpus: int) -> str:
    """Return the CPUs of a side, from `first` on: every second CPU. The other side has the rest."""
    return ",".join(map(str, list(range(first, vcpus, 2))[:threads]))


def job_text(
    path: GuestPath,
    measured: Sequence[GuestMeasurement],
    modules: Sequence[str],
    vcpus: int,
    seed: int,
    *,
    exact: bool = True,
) -> str:
    """Return the text of /job for measurements.

    `modules`: kernel modules that exist as files; others are built into the kernel. `vcpus`: number of CPUs.
    Unless `exact`, it is not known in advance when the receiver will have read all bytes, so the receiver
    reports this.
    """
    module = MODULE_OF_KIND.get(path.kind)
    lines = [f"module {module}"] if module in modules else []
    lines.append(path.line())
    address = ADDRESSES[path.kind]
    for number, measurement in enumerate(measured):
        port = str(FIRST_PORT + number)
        receive = ["/traffic", "recv", *measurement.receive, "--connect", address, "--port", port]
        send = ["/traffic", "send", *measurement.send, "--listen", address, "--port", port]
        send += ["--messages", str(measurement.messages), "--simulated", str(measurement.warm)]
        send += ["--seed", str(seed)]
        if not exact:
            send.append("--answered")
            warm = measurement.warm * measurement.size_bytes
            rest = measurement.messages * measurement.size_bytes
            receive += [word for total in (warm, warm + rest) if total for word in ("--answer", str(total))]
        lines.append(f"measure {measurement.impl}/{measurement.size_bytes} {port}")
        for name, words, first in (("recv", receive, min(1, vcpus - 1)), ("send", send, 0)):
            lines.append(" ".join([name, *words, "--cpus", _cpus(first, measurement.threads, vcpus)]))
    for line in lines:
        if "\n" in line or len(line) > 4000:
            raise UsageError(f"--simulate: {line[:40]}...: too long for the guest")
    return "\n".join(lines) + "\n"


# The second part checks a command of the user for the guest, and finds the addresses of its functions.

PROGRAM_MAX_BYTES = 64 << 20
WORDS_MAX = 90
SEPARATOR = "--"
# Values of e_machine and e_type in an ELF header.
X86_64, FIXED_ADDRESS = 62, 2


@dataclass(frozen=True)
class GuestCommand:
    """A user's command to run in the guest.

    program: content of the program file
    symbols: the program's functions in the format of /proc/kallsyms, empty if unknown
    server: words of a server program that starts before the command and runs alongside
    """

    words: tuple[str, ...]
    program: bytes = field(repr=False)
    symbols: bytes = field(repr=False)
    server: tuple[str, ...] = ()
    server_program: bytes = field(default=b"", repr=False)

    @property
    def line(self) -> list[str]:
        """The arguments as the user typed them."""
        return [*self.server, *([SEPARATOR] if self.server else []), *self.words]


def read_command(words: Sequence[str]) -> GuestCommand:
    """Read the programs in `COMMAND` or `SERVER -- COMMAND`. Raises UsageError for unsupported programs."""
    split_index = words.index(SEPARATOR) if SEPARATOR in words else 0
    server, command = words[:split_index], words[split_index + 1 if split_index else 0 :]
    if not command:
        raise UsageError(f"{' '.join(words)}: no command after the server; add a command")
    program, server_program = _program(command), _program(server) if server else b""
    # Two programs have different functions at the same addresses, so the symbols of neither can be used.
    symbols = command_symbols(program) if server_program in (b"", program) else b""
    return GuestCommand(tuple(command), program, symbols, tuple(server), server_program)


def _program(words: Sequence[str]) -> bytes:
    """Return the content of a command's program file. Raises UsageError."""
    name = words[0]
    path = shutil.which(name)
    if path is None:
        raise UsageError(f"{name}: no such program, or not executable; give its path")
    if len(words) > WORDS_MAX or any("\n" in word or "\x1f" in word or not word for word in words):
        limits = f"no empty arguments, no line feeds, at most {WORDS_MAX} arguments"
        raise UsageError(f"{name}: unsupported arguments; use {limits}")
    try:
        size = Path(path).stat().st_size
        program = files.read(Path(path)) if size <= PROGRAM_MAX_BYTES else b""
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}; choose another program") from error
    if size > PROGRAM_MAX_BYTES:
        raise UsageError(f"{path}: {size:,} bytes; at most {PROGRAM_MAX_BYTES >> 20} MiB fit into the guest")
    check(program, path)
    return program


def check(program: bytes, path: str) -> None:
    """Raise UsageError unless a program is static and for x86-64. `path`: the program's name in messages."""
    try:
        elf = ElfFile.of(program)
    except RunError:
        elf = None
    if elf is None or elf.machine != X86_64 or not elf.kind:
        raise UsageError(
            f"{path}: not a program for x86-64: the guest has no interpreters; give a compiled program"
        )
    if PT_INTERP in elf.segment_types:
        raise UsageError(f"{path}: needs shared libraries, which the guest lacks; link it with -static")


def command_symbols(program: bytes) -> bytes:
    """Return a line `ADDRESS t NAME` for each function, or nothing if stripped or position-independent."""
    elf = ElfFile.of(program)
    if elf.kind != FIXED_ADDRESS:
        return b""
    try:
        return "".join(f"{address:016x} t {name}\n" for _, address, name in elf.code()).encode()
    except RunError:
        return b""
