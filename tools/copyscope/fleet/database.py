# SPDX-License-Identifier: GPL-2.0-only
"""Query a fleet's records with SQL: a Parquet file beside each record, and two DuckDB tables.

Records come from other machines and are not trusted: incomplete ones are skipped, and their file names are
reported. DuckDB (requirements/fleet.txt) is needed for queries only, not for running commands.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from copyscope.base.database import connect, parquet_of
from copyscope.base.errors import RecordError, RunError
from copyscope.base.files import save
from copyscope.fleet.answers import COLUMNS, TableLine, record_lines
from copyscope.ledger.derive import completed
from copyscope.record import store
from copyscope.record.run import Run
from copyscope.record.store import NoSchemaError

TABLES = """
CREATE OR REPLACE TABLE every AS SELECT *
  FROM read_parquet($files, hive_partitioning = true, hive_types_autocast = false);
CREATE OR REPLACE VIEW runs AS
  SELECT * EXCLUDE (kind, name, side, context, bytes, calls, cpu_ns, ns_per_kib, method)
  FROM every WHERE kind = 'run';
CREATE OR REPLACE VIEW rows AS SELECT * FROM every WHERE kind <> 'run';
"""


@dataclass
class KeptRecords:
    """Number of usable records, and skipped files with the reasons (`left_out`)."""

    records: int = 0
    left_out: list[str] = field(default_factory=list)


def update_parquet_files(out: Path) -> KeptRecords:
    """Write a Parquet file for each record that has no up-to-date one. Raises OSError, RunError.

    `out`: directory with the records.
    """
    kept = KeptRecords()
    for path in sorted(out.glob("host=*/date=*/*.json*")):
        parquet_path = path.with_name(path.name.partition(".json")[0] + ".parquet")
        if parquet_path.exists() and parquet_path.stat().st_mtime_ns >= path.stat().st_mtime_ns:
            kept.records += 1
            continue
        try:
            table = [_with_utc_time(line) for line in record_lines(_read_run(path))]
        except NoSchemaError:
            continue  # a document of doctor, drill or crossover, which have no schema
        except RecordError as error:
            reason = str(error).removeprefix(f"{path}: ")
            kept.left_out.append(f"{path.relative_to(out)}: {reason}")
            parquet_path.unlink(missing_ok=True)
            continue
        save(parquet_path, parquet_of(COLUMNS, table))
        kept.records += 1
    return kept


def _read_run(path: Path) -> Run:
    """Return the run in a file. Raises RecordError if the file has no run."""
    run = completed(store.read(path))
    if isinstance(run, Run):
        return run
    raise RecordError("a record of a simulated machine, which measured nothing")


def _with_utc_time(line: TableLine) -> Mapping[str, Any]:
    """Return a table line with `started_at` in UTC, without a time zone suffix. Raises RecordError."""
    try:
        started = datetime.fromisoformat(str(line["started_at"]))
        return {**line, "started_at": started.astimezone(UTC).replace(tzinfo=None)}
    except ValueError:
        raise RecordError(f"run.started: {line['started_at']}: not a time") from None


def query(out: Path, sql: str) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Run an SQL query over the records in a directory. Return the column names and the rows.

    Raises RunError with DuckDB's message.
    """
    database = connect()
    import duckdb  # noqa: PLC0415 (optional)

    try:
        for statement in filter(None, map(str.strip, TABLES.split(";"))):
            files = {"files": f"{out}/host=*/date=*/*.parquet"} if "$files" in statement else {}
            database.execute(statement, files)
        answer = database.execute(sql)
        return [column[0] for column in answer.description or ()], answer.fetchall()
    except duckdb.Error as error:
        raise RunError(f"SQL: {error}") from error


# Predefined questions of `copyscope fleet query`.
#
# The table `runs` has a line for each record, the table `rows` a line for each ledger row and stage, with
# host and date. Only valid runs count. Most questions use only the newest run of each host, program, size and
# path.

NEWEST_RUNS = """\
WITH newest AS (
  SELECT * FROM runs WHERE valid
  QUALIFY row_number() OVER (PARTITION BY host, subject, size_bytes, path ORDER BY started_at DESC) = 1
)
"""
# SQL for the CPU time per copied KiB. The rows of an account in a run are added up.
COPY_COST = """\
WITH copies AS (
  SELECT host, started_at, run, {by}, subject, size_bytes, name,
    sum(cpu_ns) / (sum(bytes) / 1024) AS ns_per_copied_kib
  FROM rows
  WHERE valid AND kind = 'account' AND name IN ('file_read', 'gather', 'copy_in', 'deferred', 'silent',
    'copy_out')
  GROUP BY ALL HAVING sum(bytes) > 0 AND count(cpu_ns) > 0
)
SELECT {by}, name AS copy, subject, size_bytes, count(DISTINCT host) AS hosts, count(*) AS runs,
  round(median(ns_per_copied_kib), 1) AS "ns per copied KiB",
  round(quantile_cont(ns_per_copied_kib, 0.25), 1) AS "a quarter below",
  round(quantile_cont(ns_per_copied_kib, 0.75), 1) AS "a quarter above"
FROM copies GROUP BY ALL ORDER BY copy, subject, size_bytes, "ns per copied KiB"
"""


@dataclass(frozen=True)
class FleetQuestion:
    """Predefined question: the question as a sentence, and the SQL query that answers it."""

    text: str
    sql: str


QUESTIONS = {
    "who-copies": FleetQuestion(
        "Which hosts copy most, and how often was a zero-copy send copied after all?",
        NEWEST_RUNS
        + """\
SELECT host, subject, kernel, nic, round(copied_bytes / delivered_bytes, 2) AS "copies of each byte",
  round(100 * zero_copy_copied_share, 1) AS "zero-copy sends copied %", cause
FROM newest
ORDER BY zero_copy_copied_share DESC NULLS LAST, "copies of each byte" DESC NULLS LAST, host, subject
""",
    ),
    "cost-by-kernel": FleetQuestion("What does a copy cost, by kernel?", COPY_COST.format(by="kernel")),
    "cost-by-nic": FleetQuestion(
        "What does a copy cost, by the driver of the NIC?", COPY_COST.format(by="nic")
    ),
    "since-when": FleetQuestion(
        "When did each host start or stop copying its zero-copy sends, and what else changed then?",
        """\
WITH known AS (
  SELECT host, subject, path, started_at, kernel, nic, zero_copy_copied_share > 0 AS copies
  FROM runs WHERE valid AND zero_copy_copied_share IS NOT NULL
), changed AS (
  SELECT *, lag(copies) OVER each AS before, lag(kernel) OVER each AS kernel_before,
    lag(nic) OVER each AS nic_before, lag(started_at) OVER each AS last_seen_otherwise
  FROM known WINDOW each AS (PARTITION BY host, subject, path ORDER BY started_at)
)
SELECT host, subject, path, CASE WHEN copies THEN 'copied' ELSE 'not copied' END AS "zero-copy sends are",
  started_at AS since, CASE WHEN before IS NULL THEN NULL ELSE last_seen_otherwise END AS "last otherwise",
  concat_ws('; ', CASE WHEN before IS NULL THEN 'no record from before' END,
    CASE WHEN kernel <> kernel_before THEN 'kernel ' || kernel_before || ' -> ' || kernel END,
    CASE WHEN nic <> nic_before THEN 'nic ' || nic_before || ' -> ' || nic END) AS "changed with it"
FROM changed WHERE before IS NULL OR copies <> before
QUALIFY row_number() OVER (PARTITION BY host, subject, path ORDER BY started_at DESC) = 1
ORDER BY since DESC, host, subject
""",
    ),
    "who-gains": FleetQuestion(
        "Which watched programs would save most if they copied less, and what stops them?",
        NEWEST_RUNS
        + """\
SELECT host, subject, kernel, round(100 * save_share, 1) AS "at most % of its CPU time",
  round(100 * save_share_low, 1) AS "low end (95 %)",
  coalesce(nullif(stoppers, ''), 'nothing') AS "stopped by"
FROM newest WHERE watched AND save_share IS NOT NULL
ORDER BY stoppers <> '', save_share DESC, host, subject
""",
    ),
}
