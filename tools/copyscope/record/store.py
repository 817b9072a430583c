"""The record: one run as one JSON file. Everything after it reads files only.

  schema 1   copyscope 0.1: own traffic and watched programs were two kinds of record.
  schema 2   one kind of record: `run.sides`, and in each segment `sides` by name.

Another schema is refused. The keys are in measured.py, derived.py and simulated.py, explained in
docs/reference/record.md. Samples are kept as shares per symbol, not as stacks: a record is committed.

On disk: UTF-8, object keys sorted, one top-level key per line, rows of a top-level list one per line. The
same record is the same bytes whatever the order in which it was put together, and a changed row is a
one-line diff. A name that ends in .gz is compressed, without a time or a name inside: the same bytes again.
"""

import gzip
import hashlib
import io
import json
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from copyscope.files import regular_file

SCHEMA = 2
# The largest that is measured is 64 bits, and a sign.
DIGITS_MAX = 20
NUMBER_MAX = 1e21

Record = dict[str, Any]


class RecordError(Exception):
    """A record cannot be read or written; the message is one line that names the file."""


class NoSchemaError(RecordError):
    """A document of something else."""


class SchemaError(RecordError):
    """A record of a schema that this copyscope does not have."""


def run_id(experiment: str | None, factors: Mapping[str, Any], repeat: int) -> str:
    """`<experiment>-<factor digest>-<repeat>`; a run outside an experiment is called `profile`.

    The digest depends on the factors' names and values, not on their order.
    """
    canonical = json.dumps(
        dict(factors), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    )
    digest = hashlib.sha256(canonical.encode(errors="backslashreplace")).hexdigest()[:10]
    return f"{experiment or 'profile'}-{digest}-{repeat}"


def serialise(record: Record) -> bytes:
    """The bytes of a record. Raises RecordError for what JSON cannot hold (NaN, infinity, objects)."""
    try:
        lines = [f"{_compact(key)}:{_section(record[key])}" for key in sorted(record)]
    except (TypeError, ValueError) as error:
        run = record.get("run")
        name = run.get("id", "?") if isinstance(run, dict) else "?"
        raise RecordError(f"record: {name}: not JSON: {error}") from error
    # A name of bytes that are no UTF-8 (os.fsdecode) becomes \udcXX, which JSON has, too.
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode(errors="backslashreplace")


def _section(value: Any) -> str:
    if isinstance(value, list) and value:
        return "[\n" + ",\n".join(_compact(row) for row in value) + "\n]"
    if isinstance(value, dict) and value and any(isinstance(v, (dict, list)) for v in value.values()):
        return "{\n" + ",\n".join(f"{_compact(k)}:{_compact(value[k])}" for k in sorted(value)) + "\n}"
    return _compact(value)


def _compact(value: Any) -> str:
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def compressed(record: Record) -> bytes:
    """The bytes of a file of one record whose name ends in .gz."""
    return gzipped(serialise(record))


def compressed_line(record: Record) -> bytes:
    """One line of a file of many (records_file.py). Raises RecordError as serialise() does."""
    return gzipped(serialise(record).replace(b"\n", b"") + b"\n")


def gzipped(data: bytes) -> bytes:
    """gzip.compress() lets zlib write the header, which then differs between Python versions."""
    made = io.BytesIO()
    with gzip.GzipFile(filename="", mode="wb", fileobj=made, mtime=0) as stream:
        stream.write(data)
    return made.getvalue()


def read(path: Path) -> Record:
    """The record in a file, of this schema. Raises RecordError, one line that names the file."""
    return _of_this_schema(_document(path), str(path))


def read_runs(path: Path) -> list[Record]:
    """Likewise of a file that may hold several runs (`--repeat N --json FILE`)."""
    found = _document(path)
    return [_of_this_schema(one, str(path)) for one in (found if isinstance(found, list) else [found])]


def _document(path: Path) -> Any:
    try:
        data = regular_file.read(path)
        text = (regular_file.gunzip(data) if path.suffix == ".gz" else data).decode()
    except EOFError:
        why = "truncated: the compressed data end early: run it again"
    except OverflowError:
        why = "larger than any record: not one"
    except zlib.error as error:
        why = f"damaged, or not compressed: {error}: run it again"
    except OSError as error:
        step = "choose a file in it" if isinstance(error, IsADirectoryError) else "check its name and rights"
        why = f"cannot be read: {error.strerror}: {step}"
    except UnicodeDecodeError as error:
        why = f"not UTF-8 at byte {error.start}: not a record, or damaged"
    else:
        return document(text, str(path))
    raise RecordError(f"record: {path}: {why}")


def parse(text: str, path: str) -> Record:
    """The record that stands in a text, of this schema. Raises RecordError that names `path`."""
    return _of_this_schema(document(text, path), path)


def document(text: str, path: str) -> Any:
    """What stands in a text, without numbers that nobody measures. Raises RecordError that names `path`."""
    try:
        return json.loads(text, parse_constant=_refuse_constant, parse_int=_whole_number, parse_float=_number)
    except json.JSONDecodeError as error:
        cut = error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated")
        said = f"{'truncated' if cut else 'invalid JSON'} at line {error.lineno}: {error.msg}"
        why = f"{said if text.strip() else 'empty'}: not a record, or damaged"
    except ValueError as error:
        why = f"{error}: run it again"
    except RecursionError:
        why = "nested too deeply: not a record"
    raise RecordError(f"record: {path}: {why}")


def _whole_number(text: str) -> int:
    if len(text) > DIGITS_MAX:
        raise ValueError(f"a number of {len(text)} digits")
    return int(text)


def _number(text: str) -> float:
    found = float(text)
    if found and not 1 / NUMBER_MAX**4 < abs(found) < NUMBER_MAX:
        raise ValueError(f"{text[:20]} is nothing that can be measured")
    return found


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not a number that JSON has")


def _of_this_schema(record: Any, source: str) -> Record:
    """The record. Raises RecordError naming `source`, and both versions where it is of another schema."""
    if not isinstance(record, dict):
        kind = type(record).__name__
        raise RecordError(f"record: {source}: a {kind} at the top, not an object: not a record")
    found = record.get("schema")
    if not isinstance(found, int) or isinstance(found, bool) or "kind" in record:
        raise NoSchemaError(f"record: {source}: no schema number: not a record of copyscope")
    if found != SCHEMA:
        newer = f"schema {found}, this copyscope reads up to {SCHEMA}: update copyscope"
        older = f"schema {found}: copyscope 0.1 reads it, this one schema {SCHEMA}: run it again"
        raise SchemaError(f"record: {source}: {newer if found > SCHEMA else older}")
    return record


def validate(record: Record, *, raw: bool = False) -> list[str]:
    """What is wrong with a record, one line per problem (empty: nothing).

    Checks that every key is there with its type, and that each null of a derived row has a reason. With `raw`
    only what exists before `ledger.derive`.
    """
    # Who only writes records does without the Structs: making them takes longer than the rest of this module.
    from copyscope.record.check import find_problems  # noqa: PLC0415

    problems = find_problems(record, raw=raw)
    if not problems and record["schema"] != SCHEMA:
        problems.append(f"schema: {record.get('schema')!r}: expected {SCHEMA}")
    return problems
