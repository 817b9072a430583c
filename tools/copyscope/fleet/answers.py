"""What came of one host, from what it said: a row of the table, and in what it can differ from others. Pure.

All of it is another machine's word: a document that is not what was asked for is refused, and text is shown
only with what is harmful in it made visible.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from msgspec import Struct, convert

from copyscope.escaping import one_line
from copyscope.record import store
from copyscope.record.check import typed_whole
from copyscope.record.derived import Zerocopy
from copyscope.record.store import RecordError

State = Literal["ok", "invalid", "failed", "timed out", "unreachable", "interrupted"]
NOT_THERE = 127
# As much as the module takes of what is printed there (library/copyscope_ask.py).
OUTPUT_MAX_BYTES = 64 << 20
# What is said there is cut after so much, so that the next step is still read.
SAID_MAX = 160
CAUSE_MAX = 240
# What ansible says before ssh's own words.
BEFORE_SSH = re.compile(r"^.*(?:reached over|to the host via) ssh: ")


@dataclass(frozen=True)
class Answer:
    """How the command ended (None: its time was over), and what was said, which is another machine's word.

    `facts`: what the module says of the host (library/copyscope_ask.py); None: it did not run.
    """

    status: int | None
    output: bytes
    errors: bytes
    seconds: float
    facts: Any = None
    reached: bool = True


class Facts(Struct):
    """What the module says of its host."""

    kernel: str
    arch: str
    nics: list[str]


class Way(Struct):
    """A row of the drill's table, as far as it is needed here."""

    way: str
    path: str
    result: str


class Drilled(Struct):
    kernel: str
    ways: list[Way]


class Pair(Struct):
    """Two strategies in one quantity: from which size on the second is better, if from any."""

    pair: list[str]
    quantity: str
    threads: int
    verdict: str


class Crossed(Struct):
    """What a crossover says."""

    sentence: str
    valid_runs: int
    crossovers: list[Pair]


class Found(Struct):
    """A row of the doctor's."""

    area: str
    name: str
    status: str


class Examined(Struct):
    works: bool
    sentence: str
    findings: list[Found]


@dataclass(frozen=True)
class Row:
    """One host.

    ns_per_kib: all CPU time for each KiB that was delivered
    traits: in what it can be like or unlike the others, each in a few words
    """

    host: str
    state: State
    facts: Facts | None = None
    valid: bool | None = None
    copied: float | None = None
    ns_per_kib: float | None = None
    cause: str | None = None
    traits: Mapping[str, str] = field(default_factory=dict)
    document: dict[str, Any] | None = None


class Refused(Exception):
    """An answer that is not what was asked for."""


def judge(host: str, command: str, answer: Answer) -> Row:
    """The row of a host, whatever it answered."""
    try:
        return _judged(host, command, answer)
    except (ValueError, LookupError, TypeError, ArithmeticError, RecursionError) as error:
        why = f"its answer cannot be read: {type(error).__name__}: {error}"
        return _with(Row(host, "failed"), "failed", why)


def _judged(host: str, command: str, answer: Answer) -> Row:
    row = Row(host, "failed")
    if not answer.reached:
        return _with(row, "unreachable", f"{_last(answer)}: make `ansible -m ping {host}` work first")
    try:
        row = replace(row, facts=None if answer.facts is None else convert(answer.facts, Facts))
    except ValueError as error:
        return _with(row, "failed", f"not the facts of a host: {error}")
    if answer.status is None:
        return _with(row, "timed out", f"no end within {answer.seconds:.0f} s: --timeout waits longer")
    if row.facts is None or answer.status == NOT_THERE:
        return _with(row, "failed", f"{_last(answer)}{_step(answer)}")
    try:
        return _read(row, command, answer.output)
    except Refused as error:
        return _with(row, "failed", _last(answer) if answer.status else str(error))


def _with(row: Row, state: State, cause: str) -> Row:
    return replace(row, state=state, cause=one_line(cause, CAUSE_MAX))


def _last(answer: Answer) -> str:
    """The last line of what it said on standard error."""
    lines = answer.errors.decode(errors="replace").strip().splitlines()
    return (
        one_line(BEFORE_SSH.sub("", lines[-1].rstrip(".")), SAID_MAX)
        if lines
        else f"ended with status {answer.status} without a message"
    )


def _step(answer: Answer) -> str:
    """What to do where the command has not even begun."""
    said = answer.errors.lower()
    if answer.status == NOT_THERE:
        return ": install copyscope there, or give its directory with --tree"
    if b"sudo" in said:
        return ": allow sudo without a password, or log in as root"
    return ": install Python 3 there" if b"python3" in said else ""


def _read(row: Row, command: str, output: bytes) -> Row:
    """What the command's document says. Raises Refused."""
    try:
        if len(output) > OUTPUT_MAX_BYTES:
            raise Refused(f"more than {OUTPUT_MAX_BYTES >> 20} MiB: not an answer of {command}")
        text = output.decode()
        if command not in ("doctor", "drill", "crossover"):
            return _of_record(row, store.parse(text, "its answer"))
        document = _document(text)
        if command == "drill":
            ways = {f"{way.way} over {way.path}": way.result for way in convert(document, Drilled).ways}
            return replace(row, state="ok", traits=ways, document=document)
        if command == "crossover":
            return _of_crossover(row, convert(document, Crossed), document)
        seen = convert(document, Examined)
    except (ValueError, RecursionError) as error:
        raise Refused(f"not an answer of {command}: {error}: is it the same version there?") from error
    except RecordError as error:
        raise Refused(str(error)) from error
    traits = {f"{found.area}: {found.name}": found.status for found in seen.findings}
    row = replace(row, state="ok", traits=traits, document=document)
    return row if seen.works else _with(row, "failed", seen.sentence)


def _document(text: str) -> Any:
    try:
        return store.document(text, "its answer")
    except RecordError as error:
        raise ValueError(str(error).removeprefix("record: its answer: ")) from None


def _of_crossover(row: Row, said: Crossed, document: dict[str, Any]) -> Row:
    """Sizes are of each host alone: hosts are alike in whether there is one."""
    if not said.valid_runs:
        return _with(replace(row, document=document), "failed", said.sentence)
    traits = {
        f"{' and '.join(at.pair)}, {at.quantity}, threads {at.threads}": at.verdict for at in said.crossovers
    }
    return replace(row, state="ok", traits=traits, document=document)


def _of_record(row: Row, record: dict[str, Any]) -> Row:
    run = typed_whole(record).derived
    costs = [line.ns_per_kib for line in (*run.ledger, *run.stages) if line.ns_per_kib is not None]
    row = replace(row, state="ok", valid=run.verdict.valid, document=record)
    row = replace(row, ns_per_kib=sum(costs) if costs else None)
    if not run.verdict.valid:
        row = _with(row, "invalid", run.verdict.reasons[0])
    copied = None if run.zerocopy is None else copied_share(run.zerocopy)
    if run.zerocopy is None or copied is None:
        return row
    cause = run.zerocopy.cause.sentence if run.zerocopy.cause else "cause not known"
    said = f"copied after all: {cause}" if copied > 0 else "not copied"
    return replace(row, copied=copied, traits={"zero-copy sends": said})


def copied_share(zerocopy: Zerocopy) -> float | None:
    """The part of the zero-copy sends that was copied after all; None: there are none, or it is not known.

    By the flag of the completions, of all of the run; or without the flag by bytes of the ledger's segments.
    """
    if not zerocopy.completions or zerocopy.copied is None:
        return None
    silent, whole = zerocopy.bytes_silent or 0, zerocopy.bytes_zero_copy or 0
    told = zerocopy.copied / zerocopy.completions
    return max(told, silent / (silent + whole) if silent else 0.0)
