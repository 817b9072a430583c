"""A program of the user's for the guest: what it must be, and where its functions are."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from copyscope.errors import RunError, UsageError
from copyscope.files import regular_file
from copyscope.run.elf import PT_INTERP, ElfFile

PROGRAM_MAX_BYTES = 64 << 20
WORDS_MAX = 90
SPLIT = "--"
# Of an ELF header: machine, type.
X86_64, FIXED = 62, 2


@dataclass(frozen=True)
class Command:
    """What runs in the guest, and its functions in the form of /proc/kallsyms (empty: it does not tell).

    `server`: the words of what runs beside it, from before it on.
    """

    words: tuple[str, ...]
    program: bytes = field(repr=False)
    symbols: bytes = field(repr=False)
    server: tuple[str, ...] = ()
    server_program: bytes = field(default=b"", repr=False)

    @property
    def line(self) -> list[str]:
        """As it was given."""
        return [*self.server, *([SPLIT] if self.server else []), *self.words]


def read(words: Sequence[str]) -> Command:
    """`COMMAND`, or `SERVER -- COMMAND`. Raises UsageError for what cannot run in the guest."""
    at = words.index(SPLIT) if SPLIT in words else 0
    server, own = words[:at], words[at + 1 if at else 0 :]
    if not own:
        raise UsageError(f"{' '.join(words)}: no command after the server: name one")
    program, beside = _program(own), _program(server) if server else b""
    # Two programs lie at the same addresses, with different functions there.
    symbols = functions(program) if beside in (b"", program) else b""
    return Command(tuple(own), program, symbols, tuple(server), beside)


def _program(words: Sequence[str]) -> bytes:
    name = words[0]
    path = shutil.which(name)
    if path is None:
        raise UsageError(f"{name}: no such program, or not executable: give its path")
    if len(words) > WORDS_MAX or any("\n" in word or "\x1f" in word or not word for word in words):
        raise UsageError(f"{name}: no empty arguments, no line feeds, at most {WORDS_MAX} arguments")
    try:
        size = Path(path).stat().st_size
        program = regular_file.read(Path(path)) if size <= PROGRAM_MAX_BYTES else b""
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}: choose another program") from error
    if size > PROGRAM_MAX_BYTES:
        raise UsageError(f"{path}: {size:,} bytes: at most {PROGRAM_MAX_BYTES >> 20} MiB fit into the guest")
    check(program, path)
    return program


def check(program: bytes, path: str) -> None:
    """Raises UsageError for what is not a static program for x86-64."""
    try:
        elf = ElfFile.of(program)
    except RunError:
        elf = None
    if elf is None or elf.machine != X86_64 or not elf.kind:
        raise UsageError(
            f"{path}: not a program for x86-64: the guest has no interpreters: give a compiled one"
        )
    if PT_INTERP in elf.parts:
        raise UsageError(f"{path}: needs shared libraries, which the guest lacks: link it with -static")


def functions(program: bytes) -> bytes:
    """`ADDRESS t NAME` for each function; none of a program that is stripped or lies anywhere."""
    elf = ElfFile.of(program)
    if elf.kind != FIXED:
        return b""
    try:
        return "".join(f"{address:016x} t {name}\n" for _, address, name in elf.code()).encode()
    except RunError:
        return b""
