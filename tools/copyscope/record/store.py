# SPDX-License-Identifier: GPL-2.0-only
"""Read and write records: one run as one JSON file. Every step after a run reads only such files.

  schema 1   copyscope 0.1: our own traffic and watched processes had two kinds of record.
  schema 2   one kind of record: `run.sides`, and in each segment `sides` by name.

Records of other schemas are refused. measured.py, derived.py and simulated.py define the keys, and
docs/reference/record.md explains them. Only this file converts JSON into these types, and back. A rewritten
document keeps keys that no type names. Samples are kept as sums per symbol, not as stacks, so that a record
is small enough to commit.

Format: UTF-8, sorted keys, one line for each top-level key, one line for each row of a top-level list. The
same record always gives the same bytes, and a changed row is a diff of one line. A file whose name ends in
.gz is compressed, with neither a time stamp nor a file name in its header.
"""

import gzip
import hashlib
import io
import json
import os
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from msgspec import ValidationError, convert, structs, to_builtins

from copyscope.base import files
from copyscope.base.errors import MissingRecordError, RecordError
from copyscope.base.spelling import one_line
from copyscope.record.derived import Derived, SimulatedRun
from copyscope.record.measured import SCHEMA, Machine, Measured
from copyscope.record.run import CompleteRun, Run, Stored
from copyscope.record.sections import Section

# Limits of numbers in a record: most digits of an integer (64 bits with a sign), and largest value.
DIGITS_MAX = 20
NUMBER_MAX = 1e21
# Keys of lists that the record of a watched process always has, even if empty, so that readers can iterate.
LISTS_OF_WATCHED = ("volume", "connections", "send_errors", "buffers")

# JSON object of a record. Only this file and tests read its keys.
Document = dict[str, Any]
Part = TypeVar("Part", bound=Section)


class NoSchemaError(RecordError):
    """Error for a document that is not a record of copyscope."""


class SchemaError(RecordError):
    """Error for a record with a schema that this copyscope cannot read."""


def run_id(experiment: str | None, factors: Mapping[str, object], repeat: int) -> str:
    """Return `<experiment>-<digest of the factors>-<repeat>`, with `profile` if there is no experiment.

    The digest depends on the names and values of the factors, not on their order.
    """
    canonical = json.dumps(
        dict(factors), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    digest = hashlib.sha256(canonical.encode(errors="backslashreplace")).hexdigest()[:10]
    return f"{experiment or 'profile'}-{digest}-{repeat}"


def as_record(document: Document) -> Stored:
    """Return the record in a document. Raises RecordError that names the first missing or wrong key."""
    if "simulated" in document:
        return convert_part(document, SimulatedRun)
    raw = convert_part(document, Measured)
    return Run(raw, convert_part(document, Derived)) if "verdict" in document else raw


def has_measured_part(document: Document) -> bool:
    """Return True if the document has a complete measured part."""
    try:
        return "simulated" not in document and bool(convert_part(document, Measured))
    except RecordError:
        return False


def convert_part(document: Document, kind: type[Part]) -> Part:
    """Return the measured or the derived part (`kind`) of a document. Raises RecordError."""
    try:
        return convert(document, kind)
    # A key may be half of a surrogate pair, which JSON allows.
    except (ValidationError, UnicodeEncodeError) as error:
        raise incomplete(error) from error


def incomplete(error: Exception) -> RecordError:
    """Return the error for a record with a missing key or a wrong value. `error`: raised by msgspec."""
    return RecordError(f"incomplete record ({one_line(str(error))}); measure again")


def document_of(record: Stored) -> Document:
    """Return the JSON object of a record. The derived part wins for sections that both parts have."""
    if isinstance(record, Run):
        return {**document_of(record.raw), **to_builtins(record.derived)}
    document: Document = to_builtins(record)
    if isinstance(record, Measured) and record.target is not None:
        return {**{name: [] for name in LISTS_OF_WATCHED}, **document}
    return document


def with_derived(document: Document, derived: Derived) -> Document:
    """Return the document with a new derived part. It keeps the advice, which depends on other files, too."""
    advice = {name: document[name] for name in ("advice", "why") if name in document}
    return {**document, **to_builtins(derived), **advice}


def without_derived(document: Document) -> Document:
    """Return the document without the sections that only the derived part has."""
    derived = set(Derived.__struct_fields__) - set(Measured.__struct_fields__)
    return {key: value for key, value in document.items() if key not in derived}


def find_run_id(document: Document) -> str:
    """Return the id of the run, or "" if the document has none."""
    run = document.get("run")
    return str(run.get("id", "")) if isinstance(run, dict) else ""


def as_indented_json(records: CompleteRun | Sequence[Run]) -> str:
    """Return one record, or a list of several records, as JSON for people and for jq."""
    if isinstance(records, (Run, SimulatedRun)):
        return json.dumps(document_of(records), indent=1, sort_keys=True) + "\n"
    documents = list(map(document_of, records))
    return json.dumps(documents, indent=1, sort_keys=True) + "\n"


def serialise(record: Stored | Document) -> bytes:
    """Return the bytes of a record. Raises RecordError for values that JSON cannot hold (NaN, infinity)."""
    record = record if isinstance(record, dict) else document_of(record)
    try:
        lines = [f"{_compact(key)}:{_section(record[key])}" for key in sorted(record)]
    except (TypeError, ValueError) as error:
        raise RecordError(f"{find_run_id(record) or '?'}: cannot be written as JSON: {error}") from error
    # os.fsdecode() turns bytes of a name that are not UTF-8 into surrogates. JSON writes them as \udcXX.
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode(errors="backslashreplace")


def _section(value: Any) -> str:
    """Return the JSON of a top-level value, with a line for each row of a list or each nested section."""
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(_compact(row) for row in value) + "\n]"
    if isinstance(value, dict) and value and any(isinstance(v, (dict, list)) for v in value.values()):
        return "{\n" + ",\n".join(f"{_compact(k)}:{_compact(value[k])}" for k in sorted(value)) + "\n}"
    return _compact(value)


def _compact(value: Any) -> str:
    """Return the JSON of a value in one line, with sorted keys."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def compressed(record: Stored | Document) -> bytes:
    """Return the content of a compressed file (.gz) of one record."""
    return gzipped(serialise(record))


def compressed_line(record: Stored | Document) -> bytes:
    """Return a record as a compressed line for a file of many records. Raises RecordError."""
    return gzipped(serialise(record).replace(b"\n", b"") + b"\n")


def gzipped(data: bytes) -> bytes:
    """Return compressed data without the header of gzip.compress(), which differs between Python versions."""
    stream = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=stream, mtime=0) as member:
        member.write(data)
    return stream.getvalue()


def read(path: Path) -> Stored:
    """Return the record in a file. Raises RecordError that names the file."""
    return as_record(read_document(path))


def read_document(path: Path) -> Document:
    """Return the JSON object of the record in a file, including keys that no type names."""
    return _check_schema(_read_json(path), str(path))


def read_documents(path: Path) -> Iterator[Document]:
    """Yield the documents in a file of one or several runs (`--repeat N --json FILE`, `NAME.jsonl.gz`)."""
    if path.name.endswith(RECORDS_SUFFIX):
        for line in iterate_lines(path):
            if line.record is None:
                raise RecordError(f"{path}: {line.name}: {line.problem}")
            yield line.record
        return
    content = _read_json(path)
    for document in content if isinstance(content, list) else [content]:
        yield _check_schema(document, str(path))


def _read_json(path: Path) -> Any:
    """Return the JSON value in a file, compressed or not. Raises RecordError that names the file."""
    try:
        data = files.read(path)
        text = (files.gunzip(data) if path.suffix == ".gz" else data).decode()
    except EOFError:
        why = "truncated: the compressed data end early; repeat the run"
    except OverflowError:
        why = "larger than any record, so it is not a record"
    except zlib.error as error:
        why = f"damaged, or not compressed ({error}); repeat the run"
    except OSError as error:
        is_directory = isinstance(error, IsADirectoryError)
        step = "choose a file in the directory" if is_directory else "check its name and permissions"
        why = f"cannot be read: {error.strerror}; {step}"
        if isinstance(error, FileNotFoundError):
            raise MissingRecordError(f"{path}: {why}") from error
    except UnicodeDecodeError as error:
        why = f"not UTF-8 at byte {error.start}; it is damaged, or not a record"
    else:
        return parse_json(text, str(path))
    raise RecordError(f"{path}: {why}")


def parse(text: str, path: str) -> Document:
    """Parse the JSON text of a record. Raises RecordError that names `path`."""
    return _check_schema(parse_json(text, path), path)


def parse_json(text: str, path: str) -> Any:
    """Parse JSON. Raises RecordError that names `path`, also for numbers that no measurement can have."""
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_int=_whole_number, parse_float=_number)
    except json.JSONDecodeError as error:
        is_cut = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated")
        fault = f"{'truncated' if is_cut else 'invalid JSON'} at line {error.lineno}: {error.msg}"
        why = f"{fault if text.strip() else 'empty'}; it is damaged, or not a record"
    except ValueError as error:
        why = f"{error}; repeat the run"
    except RecursionError:
        why = "nested too deeply for a record"
    raise RecordError(f"{path}: {why}")


def _whole_number(text: str) -> int:
    """Parse an integer. Raises ValueError if it is too long."""
    if len(text) > DIGITS_MAX:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _number(text: str) -> float:
    """Parse a number. Raises ValueError if no measurement can have this value."""
    number = float(text)
    if number and not 1 / NUMBER_MAX**4 < abs(number) < NUMBER_MAX:
        raise ValueError(f"{text[:20]}: too large or too small for a measurement")
    return number


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name}: not a number in JSON")


def _check_schema(content: Any, source: str) -> Document:
    """Return the content of a file if it is a record of this schema. Raises RecordError.

    `source`: name of the file in the message.
    """
    if not isinstance(content, dict):
        kind = type(content).__name__
        raise RecordError(f"{source}: not a record (a {kind} at the top, not an object)")
    schema = content.get("schema")
    if not isinstance(schema, int) or isinstance(schema, bool) or "kind" in content:
        raise NoSchemaError(f"{source}: not a record of copyscope (no schema number)")
    if schema != SCHEMA:
        newer = f"schema {schema}, but this copyscope reads up to {SCHEMA}; update copyscope"
        older = f"schema {schema} of copyscope 0.1, but this version reads schema {SCHEMA}; repeat the run"
        raise SchemaError(f"{source}: {newer if schema > SCHEMA else older}")
    return content


# The second part reads and writes files of many records, `NAME.jsonl.gz`, with one line of JSON for each run.
# Each line is a gzip member of its own.
#
# A record is on the disk (fsync) when append_record() returns. If a kill or a full disk leaves a part of the
# last member, the next writer cuts this part off; earlier members are never rewritten. Concatenated members
# are one text (RFC 1952, 2.2), so zcat and pandas can read the file.

RECORDS_NAME = "records.jsonl.gz"
RECORDS_SUFFIX = ".jsonl.gz"
# Size in bytes of the largest file that is read: a sweep of about 50,000 runs.
FILE_BYTES_MAX = 512 << 20
# First bytes of each gzip member, without a name and a time. After damage, reading continues at such bytes.
MEMBER_BEGIN = b"\x1f\x8b\x08\x00\x00\x00\x00\x00"


@dataclass(frozen=True)
class RecordLine:
    """Line of a file of many records: the record of a run, or the problem of the line."""

    number: int
    record: Document | None
    problem: str = ""

    @property
    def name(self) -> str:
        """Name of the line in messages."""
        return f"line {self.number}"

    def typed(self) -> Stored:
        """Return the record. Raises RecordError if the line has no valid record."""
        if self.record is None:
            raise RecordError(self.problem)
        return as_record(self.record)


@dataclass(frozen=True)
class Member:
    """Gzip member of a file.

    end: offset of the end of the member
    text: content, or None if the member is damaged
    torn: True if the file ends inside the member
    """

    end: int
    text: bytes | None
    problem: str = ""
    torn: bool = False


def append_record(path: Path, record: Stored | Document) -> None:
    """Append a record to a file of many records and sync the file. If that fails, restore the old content.

    Raises RecordError.
    """
    try:
        files.append(path, compressed_line(record), mode=files.record_mode())
    except OSError as error:
        raise RecordError(f"{path}: cannot be written: {error.strerror}") from error


def write_records(path: Path, records: Iterable[Stored | Document]) -> None:
    """Write or replace a file of many records. Raises RecordError."""
    try:
        files.save(path, b"".join(map(compressed_line, records)), files.record_mode())
    except OSError as error:
        raise RecordError(f"{path}: cannot be written: {error.strerror}") from error


def read_lines(path: Path) -> list[RecordLine]:
    """Return all lines of a file of many records, even invalid ones. Raises RecordError if unreadable."""
    return list(iterate_lines(path))


def iterate_lines(path: Path) -> Iterator[RecordLine]:
    """Yield the lines of a file of many records. A caller that stops early saves parsing the later lines."""
    try:
        data = _read(path)
    except OSError as error:
        why = f"{path}: cannot be read: {error.strerror}; check its name and permissions"
        raise (MissingRecordError if isinstance(error, FileNotFoundError) else RecordError)(why) from error
    number = 0
    for member in _members(data):
        for line in _lines_of(member, number, path):
            number = line.number
            yield line


def resume_records(path: Path) -> list[RecordLine]:
    """Return all lines of a file, and prepare it for appending by cutting off an incomplete last member.

    Raises OSError.
    """
    lines: list[RecordLine] = []
    complete_bytes = 0
    for member in _members(_read(path)):
        if not member.torn:
            lines += _lines_of(member, len(lines), path)
            complete_bytes = member.end
    with files.open_to_append(path, files.record_mode()) as stream:
        if complete_bytes < stream.seek(0, os.SEEK_END):
            os.truncate(stream.fileno(), complete_bytes)
    return lines


def _read(path: Path) -> bytes:
    return files.read(path, FILE_BYTES_MAX)


def _lines_of(member: Member, lines_before: int, path: Path) -> Iterator[RecordLine]:
    """Yield the lines of a member. `lines_before`: number of lines in the members before it."""
    if member.text is None:
        yield RecordLine(lines_before + 1, None, member.problem)
        return
    for number, text in enumerate(member.text.splitlines(), lines_before + 1):
        yield _line(number, text, path)


def _line(number: int, text: bytes, path: Path) -> RecordLine:
    """Parse line `number` of a file. Raises SchemaError; other problems become part of the result."""
    source = f"{path}: line {number}"
    try:
        return RecordLine(number, parse(text.decode(), source))
    except SchemaError:
        raise
    except UnicodeDecodeError:
        return RecordLine(number, None, "not UTF-8; it is damaged, or not a record")
    except RecordError as error:
        return RecordLine(number, None, str(error).removeprefix(f"{source}: "))


def _members(data: bytes) -> Iterator[Member]:
    """Yield the gzip members of a file, in linear time even if the file is damaged."""
    position = 0
    while position < len(data):
        member = _member(data, position)
        if member.text is None:
            next_member = data.find(MEMBER_BEGIN, position + 1)
            torn = member.torn and next_member < 0
            member = Member(len(data) if next_member < 0 else next_member, None, member.problem, torn)
        yield member
        position = member.end


def _member(data: bytes, begin: int) -> Member:
    """Decompress the gzip member at offset `begin` of a file."""
    try:
        text, end = files.gunzip_member(memoryview(data), begin)
    except EOFError:
        return Member(begin, None, "truncated: the compressed data end early; repeat the run", torn=True)
    except zlib.error as error:
        return Member(begin, None, f"damaged, or not compressed ({error}); repeat the run")
    except OverflowError:
        return Member(begin, None, "larger than any record, so it is not a record")
    return Member(end, text)


# The third part compares the machines of two records.

# Keys of `machine` that distinguish machines. Records that differ in such a key are never mixed.
SAME_MACHINE = ("hostname", "kernel", "arch", "cpu_model", "cpus_online", "hypervisor", "pmu")
# Keys of `machine` with settings that a user may change. A sweep does not resume after a change.
SAME_SETTINGS = ("governor", "turbo", "smt", "mitigations", "transparent_hugepages", "clocksource")
# Text of a key in messages. Other keys are shown with their name.
MACHINE_TEXTS = {"cpu_model": "{}", "kernel": "Linux {}"}


def machine_identity(machine: Machine) -> dict[str, object]:
    """Return the facts that distinguish machines, without their settings."""
    facts = structs.asdict(machine)
    return {name: facts[name] for name in SAME_MACHINE}


def machine_facts(machine: Machine) -> dict[str, object]:
    """Return the facts that distinguish machines, and their settings."""
    facts = structs.asdict(machine)
    return {name: facts[name] for name in (*SAME_MACHINE, *SAME_SETTINGS)}


def describe_other_machine(machine: Mapping[str, object], here: Mapping[str, object]) -> str | None:
    """Return the facts in which a machine differs from `here`, such as `AMD EPYC, Linux 6.1`, or None."""
    unlike = [key for key in ("cpu_model", *SAME_MACHINE) if key in machine and machine[key] != here.get(key)]
    texts = [MACHINE_TEXTS.get(key, key + " {}").format(machine[key]) for key in dict.fromkeys(unlike)]
    return ", ".join(texts) or None
