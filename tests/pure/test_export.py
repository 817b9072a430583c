# SPDX-License-Identifier: GPL-2.0-only
"""Exported tables: the published columns come first, each point has one row, and Parquet equals CSV."""

import csv
import io
from pathlib import Path
from typing import Any

import pytest
from builders.documents import typed_runs
from builders.sweep import sweep
from copyscope.base import paths
from copyscope.base.database import connect
from copyscope.base.stats import Estimate
from copyscope.judge.metrics import METRICS
from copyscope.report import study_table as results_table
from copyscope.report import table_files
from copyscope.report.table_files import COLUMNS, TableLines

Record = dict[str, Any]

# Columns of the published reports (docs/reference/results.md), in order, so that tables can be concatenated.
PUBLISHED = (
    "report,label,strategy,message_bytes,threads,throughput_gbps,latency_us,cycles,cycles_per_byte,"
    "l1d_load_misses,llc_load_misses,llc_store_misses,context_switches,counted_process,path"
)


@pytest.fixture(scope="module")
def rows() -> list[results_table.StudyRow]:
    records = sweep(impls=("one_copy", "zero_copy"), sizes=(4096, 65_536), threads=(1, 2), repeats=3)
    records[0]["verdict"] = records[0]["verdict"] | {"valid": False, "reasons": ["too short"]}
    return results_table.fill(typed_runs(records))


@pytest.fixture(scope="module", params=["results", "ledger"])
def table(request: pytest.FixtureRequest, rows: list[results_table.StudyRow]) -> TableLines:
    return (
        table_files.results_table(rows, "demo")
        if request.param == "results"
        else table_files.ledger_table(rows)
    )


def rows_of(path: Path) -> list[dict[str, Any]]:
    answer = connect().execute(f"SELECT * FROM '{path}'")
    names = [column[0] for column in answer.description]
    return [dict(zip(names, row, strict=True)) for row in answer.fetchall()]


def parse(data: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(data.decode())))


def test_the_published_columns_come_first(rows: list[results_table.StudyRow]) -> None:
    header = table_files.as_csv(table_files.results_table(rows, "demo")).decode().splitlines()[0]
    assert header.startswith(PUBLISHED + ",")
    assert ",".join(COLUMNS) == PUBLISHED


def test_one_row_per_point_with_value_low_and_high(rows: list[results_table.StudyRow]) -> None:
    lines = parse(table_files.as_csv(table_files.results_table(rows, "demo")))
    assert len(lines) == 8
    assert [line["invalid_runs"] for line in lines].count("1") == 1
    for line, row in zip(lines, rows, strict=True):
        at = (line["strategy"], int(line["message_bytes"]), int(line["threads"]))
        assert at == (row.impl, row.size, row.threads)
        for name in METRICS:
            value = row.values[name]
            if isinstance(value, Estimate):
                assert float(line[name]) == pytest.approx(value.value, rel=1e-5)
                assert float(line[f"{name}_low"]) <= float(line[name]) <= float(line[f"{name}_high"])
            else:
                assert line[name] == line[f"{name}_low"] == line[f"{name}_high"] == ""
                assert name in line["missing"]


def test_a_counter_that_no_pmu_counts_is_empty_and_explained(rows: list[results_table.StudyRow]) -> None:
    for line in parse(table_files.as_csv(table_files.results_table(rows, "demo"))):
        for column in ("cycles", "cycles_per_byte", "l1d_load_misses", "llc_load_misses"):
            assert line[column] == ""
        assert "no PMU" in line["missing"]
        assert int(float(line["context_switches"])) > 0


def test_counters_in_the_table_are_those_of_the_sender() -> None:
    rows = results_table.fill(
        typed_runs(sweep(impls=("one_copy",), sizes=(4096,), threads=(1,), repeats=1, pmu=True))
    )
    (line,) = table_files.results_table(rows, "demo")
    counted = rows[0].point.runs[0].raw.counters["sender"]["cycles"].value
    assert line["cycles"] == pytest.approx(counted, rel=1e-5)
    assert line["counted_process"] == "sender"


def test_cpu_time_of_other_programs_is_a_column() -> None:
    records = sweep(impls=("one_copy",), sizes=(4096, 65_536), threads=(1,), repeats=1)
    for record, share in zip(records, (0.48, None), strict=True):
        record["machine_state"] |= {"others_share": share, "reasons": {"others_share": "no /proc/stat"}}
    measured_line, unmeasured_line = table_files.results_table(
        results_table.fill(typed_runs(records)), "demo"
    )
    assert measured_line["others_percent"] == pytest.approx(48)
    assert unmeasured_line["others_percent"] is None and "others_percent: no /proc/stat" in str(
        unmeasured_line["missing"]
    )


def test_parquet_holds_the_same_cells(table: TableLines, tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    path.write_bytes(table_files.as_parquet(table))
    read = rows_of(path)
    assert read == table
    # The CSV file has the same cells as text.
    spelled = [{k: "" if v is None else table_files.spell_cell(v) for k, v in line.items()} for line in read]
    assert spelled == parse(table_files.as_csv(table))
    first = path.read_bytes()
    path.write_bytes(table_files.as_parquet(table))
    assert path.read_bytes() == first


def test_a_column_of_several_kinds_is_text(tmp_path: Path) -> None:
    path = tmp_path / "table.parquet"
    path.write_bytes(
        table_files.as_parquet([{"a": 1, "b": None, "c": True}, {"a": "x", "b": None, "c": None}])
    )
    assert rows_of(path) == [
        {"a": "1", "b": None, "c": True},
        {"a": "x", "b": None, "c": None},
    ]


def test_the_ledger_of_a_point_adds_up_to_its_accounts(rows: list[results_table.StudyRow]) -> None:
    lines = table_files.ledger_table(rows)
    assert len(lines) == sum(len(row.accounts) for row in rows)
    assert {line["kind"] for line in lines} == {"account", "stage"}


def test_every_column_is_documented(table: TableLines) -> None:
    text = (paths.ROOT / "docs" / "reference" / "results.md").read_text(encoding="utf-8")
    ends = ("_low", "_high")
    for column in table[0]:
        name = column
        for end in ends:
            if column.removesuffix(end) in METRICS:
                name = column.removesuffix(end)
        assert f"`{name}`" in text, column
