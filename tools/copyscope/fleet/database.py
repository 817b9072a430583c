"""The records of a fleet as Parquet files beside them, and as two tables of DuckDB over all of these.

A record is another machine's word, or was put there by somebody's script: one that is not whole is left out,
and named. DuckDB and pyarrow are a requirements file of their own; a fleet is asked without them.
"""

import atexit
import gc
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from copyscope.errors import RunError, what_to_add
from copyscope.files import saving
from copyscope.fleet.lines import COLUMNS, Line, lines
from copyscope.ledger.derive import whole_run
from copyscope.record import store
from copyscope.record.store import NoSchemaError, RecordError

MISSING = f"is missing: {what_to_add('fleet')}"
TABLES = """
CREATE TABLE every AS SELECT *
  FROM read_parquet($files, hive_partitioning = true, hive_types_autocast = false);
CREATE VIEW runs AS SELECT * EXCLUDE (kind, name, side, context, bytes, calls, cpu_ns, ns_per_kib, method)
  FROM every WHERE kind = 'run';
CREATE VIEW rows AS SELECT * FROM every WHERE kind <> 'run';
"""


@dataclass
class Kept:
    """How many records there are, and what was left out, each with its reason."""

    records: int = 0
    left_out: list[str] = field(default_factory=list)


def to_parquet(out: Path) -> Kept:
    """A Parquet file beside each record that has none, or an older one. Raises OSError, RunError."""
    found = Kept()
    for path in sorted(out.glob("host=*/date=*/*.json*")):
        made = path.with_name(path.name.partition(".json")[0] + ".parquet")
        if made.exists() and made.stat().st_mtime_ns >= path.stat().st_mtime_ns:
            found.records += 1
            continue
        try:
            table = [_timed(line) for line in lines(whole_run(store.read(path)))]
        except NoSchemaError:
            continue  # what a doctor or a drill says is kept there, too
        except RecordError as error:
            reason = str(error).removeprefix("record: ").removeprefix(f"{path}: ")
            found.left_out.append(f"{path.relative_to(out)}: {reason}")
            made.unlink(missing_ok=True)
            continue
        saving.save(made, parquet_of(table))
        found.records += 1
    return found


def _timed(line: Line) -> dict[str, Any]:
    try:
        started = datetime.fromisoformat(str(line["started_at"]))
        return {**line, "started_at": started.astimezone(UTC).replace(tzinfo=None)}
    except ValueError:
        raise RecordError(f"record: run.started: {line['started_at']}: not a time") from None


def parquet_of(table: list[dict[str, Any]]) -> bytes:
    """Lines with the types of COLUMNS, whatever is unknown in them. Raises RunError."""
    try:
        import pyarrow  # noqa: PLC0415 (150 ms, and not there for all)
        from pyarrow import parquet  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise RunError(f"{error.name} {MISSING}") from error
    stream = pyarrow.BufferOutputStream()
    parquet.write_table(
        pyarrow.Table.from_pylist(table, schema=pyarrow.schema(COLUMNS)), stream, compression="zstd"
    )
    return bytes(stream.getvalue())


def ask(out: Path, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Column names and lines of an answer. Raises RunError: DuckDB's own words, in one line."""
    try:
        import duckdb  # noqa: PLC0415
    except ModuleNotFoundError as error:
        raise RunError(f"{error.name} {MISSING}") from error
    # At the end DuckDB names on stderr what was not collected, and __main__ has taken all from the collector.
    atexit.register(gc.unfreeze)
    # Nothing is fetched from anywhere.
    settings = {"autoinstall_known_extensions": "false", "autoload_known_extensions": "false"}
    with duckdb.connect(":memory:", config=settings) as database:
        try:
            for statement in filter(None, map(str.strip, TABLES.split(";"))):
                files = {"files": f"{out}/host=*/date=*/*.parquet"} if "$files" in statement else {}
                database.execute(statement, files)
            answer = database.execute(sql)
            return [column[0] for column in answer.description or ()], answer.fetchall()
        except duckdb.Error as error:
            raise RunError(f"SQL: {error}") from error
