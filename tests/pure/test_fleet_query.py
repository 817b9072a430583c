# SPDX-License-Identifier: GPL-2.0-only
"""`copyscope fleet query`: the answers follow from the numbers of invented records."""

import csv
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from builders import raw_record
from builders.documents import advise, derive
from builders.watched import watched_record
from copyscope.base.database import connect
from copyscope.commands import fleet
from copyscope.record import store

pytest.importorskip("duckdb", reason="make .venv/.ready-fleet")
Record = dict[str, Any]


def put(out: Path, host: str, record: Record, day: str = "2026-11-01") -> Path:
    """Save a record where `copyscope fleet` saves it, and return its path."""
    record["run"]["started"] = f"{day}T10:00:00+00:00"
    directory = out / f"host={host}" / f"date={day}"
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / f"{len(list(directory.iterdir())):06}.json"
    path.write_bytes(store.serialise(record))
    return path


def own(kernel: str, driver: str, ns_per_kib: float, *, copied: float | None = None) -> Record:
    """Return a record of traffic that copyscope sent, in which the copy into the kernel took `ns_per_kib`.

    copied: share of zero-copy sends that were copied; None: plain sends
    """
    record = derive(raw_record("one_copy" if copied is None else "zero_copy"))
    record["machine"]["kernel"] = kernel
    for device in record["topology"]["devices"]:
        device["driver"] = driver
    name = "copy_in" if copied is None else "deferred"
    rows = [row for row in record["ledger"] if row["account"] == name and row["bytes"] is not None]
    assert rows
    for row in rows:
        row["bytes"], row["cpu_ns"] = 1024 * 1000, ns_per_kib * 1000
    if copied is not None:
        zerocopy = record["zerocopy"]
        zerocopy["copied"] = round(zerocopy["completions"] * copied)
        zerocopy["bytes_silent"] = 0
    return record


def query(capsys: pytest.CaptureFixture[str], out: Path, *words: str) -> list[dict[str, str]]:
    assert fleet.main(["query", str(out), *words, "--csv"]) == 0
    return list(csv.DictReader(io.StringIO(capsys.readouterr().out)))


def test_cost_of_a_copy_by_kernel_and_by_nic_is_a_median(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Linux 6.1 has costs of 100, 110 and 150 ns per KiB, and Linux 6.12 has 200."""
    for host, kernel, driver, cost in [
        ("a", "6.1.0", "e1000", 100.0),
        ("b", "6.1.0", "e1000", 110.0),
        ("c", "6.1.0", "mlx5_core", 150.0),
        ("d", "6.12.0", "mlx5_core", 200.0),
    ]:
        put(tmp_path, host, own(kernel, driver, cost))
    invalid = own("6.12.0", "mlx5_core", 9000.0)
    invalid["verdict"] |= {"valid": False, "reasons": ["an identity is broken"]}
    put(tmp_path, "e", invalid)
    answer = {
        row["kernel"]: row for row in query(capsys, tmp_path, "cost-by-kernel") if row["copy"] == "copy_in"
    }
    assert {key: (row["hosts"], row["ns per copied KiB"]) for key, row in answer.items()} == {
        "6.1.0": ("3", "110.0"),
        "6.12.0": ("1", "200.0"),
    }
    answer = {row["nic"]: row for row in query(capsys, tmp_path, "cost-by-nic") if row["copy"] == "copy_in"}
    assert {key: row["ns per copied KiB"] for key, row in answer.items()} == {
        "e1000": "105.0",
        "mlx5_core": "175.0",
    }


def test_who_copies_uses_the_newest_run_of_each_host(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path, "mended", own("6.1.0", "e1000", 1.0, copied=1.0), "2026-11-01")
    put(tmp_path, "mended", own("6.1.0", "e1000", 1.0, copied=0.0), "2026-11-02")
    put(tmp_path, "half", own("6.1.0", "e1000", 1.0, copied=0.5))
    put(tmp_path, "copies", own("6.1.0", "e1000", 1.0, copied=1.0))
    put(tmp_path, "sends", own("6.1.0", "e1000", 1.0))
    answer = query(capsys, tmp_path, "who-copies")
    assert [(row["host"], row["zero-copy sends copied %"]) for row in answer] == [
        ("copies", "100.0"),
        ("half", "50.0"),
        ("mended", "0.0"),
        ("sends", ""),
    ]


def test_bytes_of_a_copy_with_time_on_both_sides_count_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The receiver's row has no bytes, because the sender's row has them: the number of copies is known."""
    nothing = {"bytes": None, "calls": None}
    apart, unknown = own("6.1.0", "e1000", 1.0), own("6.1.0", "e1000", 1.0)
    (copied,) = (row for row in apart["ledger"] if row["account"] == "copy_in")
    reasons = copied.get("reasons", {}) | dict.fromkeys(nothing, "counted on the row of the sender")
    apart["ledger"].append(copied | nothing | {"side": "receiver", "reasons": reasons})
    put(tmp_path, "apart", apart)
    (copied,) = (row for row in unknown["ledger"] if row["account"] == "copy_in")
    copied |= nothing | {"reasons": reasons}
    put(tmp_path, "unknown", unknown)
    copies_of = {row["host"]: row["copies of each byte"] for row in query(capsys, tmp_path, "who-copies")}
    assert float(copies_of["apart"]) > 0 and copies_of["unknown"] == ""


def test_since_when_names_the_change_that_came_with_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for day, kernel, copied in [
        ("01", "6.1.0", 0.0),
        ("02", "6.1.0", 0.0),
        ("03", "6.12.0", 1.0),
        ("04", "6.12.0", 0.9),
    ]:
        put(tmp_path, "a", own(kernel, "e1000", 1.0, copied=copied), f"2026-11-{day}")
    put(tmp_path, "b", own("6.1.0", "e1000", 1.0, copied=1.0), "2026-11-02")
    first, second = query(capsys, tmp_path, "since-when")
    assert (first["host"], first["zero-copy sends are"]) == ("a", "copied")
    assert (first["since"], first["last otherwise"]) == ("2026-11-03 10:00:00", "2026-11-02 10:00:00")
    assert first["changed with it"] == "kernel 6.1.0 -> 6.12.0"
    assert (second["host"], second["changed with it"]) == ("b", "no record from before")


def test_who_gains_is_sorted_by_saving_and_names_obstacles(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for host, share, stoppers in [
        ("little", 0.05, []),
        ("much", 0.4, []),
        ("stopped", 0.6, ["lldpd listens"]),
    ]:
        record = derive(watched_record())
        record["advice"] = advise(record, [])
        record["advice"]["most_to_save"] |= {"share": share, "low": share - 0.01}
        record["advice"]["stoppers"] = stoppers
        put(tmp_path, host, record)
    put(tmp_path, "own", own("6.1.0", "e1000", 1.0))
    answer = query(capsys, tmp_path, "who-gains")
    assert [(row["host"], row["at most % of its CPU time"], row["stopped by"]) for row in answer] == [
        ("much", "40.0", "nothing"),
        ("little", "5.0", "nothing"),
        ("stopped", "60.0", "lldpd listens"),
    ]


def test_sql_reads_the_directories_of_hosts_and_dates(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path, "admin@web1", own("6.1.0", "e1000", 1.0), "2026-11-02")
    put(tmp_path, "[::1]", own("6.1.0", "e1000", 1.0), "2026-11-03")
    sql = "SELECT host, date, kernel, cpu, nic, started_at FROM runs ORDER BY date"
    answer = query(capsys, tmp_path, "--sql", sql)
    assert [(row["host"], row["date"], row["started_at"]) for row in answer] == [
        ("admin@web1", "2026-11-02", "2026-11-02 10:00:00"),
        ("[::1]", "2026-11-03", "2026-11-03 10:00:00"),
    ]
    assert len(list(tmp_path.glob("host=*/date=*/*.parquet"))) == 2
    assert fleet.main(["query", str(tmp_path), "--sql", "SELEKT 1\n"]) == 1
    errors = capsys.readouterr().err
    assert "copyscope fleet query: SQL: " in errors and errors.count("\n") == 1


def test_incomplete_records_are_left_out_and_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    put(tmp_path, "a", own("6.1.0\x1b[2J'; DROP TABLE every; --", "e1000", 1.0))
    put(tmp_path, "b", own("6.1.0", "e1000", 1.0)).write_text('{"schema": 2}')
    put(tmp_path, "c", own("6.1.0", "e1000", 1.0)).write_text("{")
    late = own("6.1.0", "e1000", 1.0)
    path = put(tmp_path, "d", late)
    path.write_bytes(path.read_bytes().replace(b"2026-11-01T10:00:00+00:00", b"yesterday, at ten o'clock"))
    # Output of doctor is saved in the same directory, and is no record.
    (tmp_path / "host=a" / "date=2026-11-01" / "1.json").write_text('{"works": true}')
    assert fleet.main(["query", str(tmp_path), "cost-by-kernel"]) == 0
    printed = capsys.readouterr()
    assert "6.1.0␛[2J'; DROP TABLE every; --" in printed.out and "\x1b" not in printed.out
    assert [line.split(": ")[1] for line in printed.err.splitlines()] == ["left out"] * 3
    for host in "bcd":
        assert f"host={host}/" in printed.err
        assert not list((tmp_path / f"host={host}").rglob("*.parquet"))


def test_replaced_record_is_read_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = put(tmp_path, "a", own("6.1.0", "e1000", 1.0))
    assert query(capsys, tmp_path, "--sql", "SELECT kernel FROM runs") == [{"kernel": "6.1.0"}]
    other = own("6.12.0", "e1000", 1.0)
    other["run"]["started"] = "2026-11-01T10:00:00+00:00"
    path.write_bytes(store.serialise(other))
    os.utime(path, ns=(path.stat().st_mtime_ns + 10**9,) * 2)
    assert query(capsys, tmp_path, "--sql", "SELECT kernel FROM runs") == [{"kernel": "6.12.0"}]


def test_query_prints_only_its_answer(tmp_path: Path) -> None:
    """DuckDB prints warnings when Python exits, so the query runs in a process of its own."""
    put(tmp_path, "a", own("6.1.0", "e1000", 1.0))
    words = [sys.executable, "-Im", "copyscope.commands", "fleet", "query", str(tmp_path), "cost-by-kernel"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stderr) == (0, "") and "6.1.0" in done.stdout


def test_wrong_query_usage_is_an_error_of_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for words, status, message in [
        ((), 2, "one question"),
        (("who-copies", "--sql", "SELECT 1"), 2, "one question"),
        (("who-pays",), 2, "who-pays: no such question; choose who-copies, "),
        (("who-copies",), 1, "no records in host=NAME/date=DAY"),
    ]:
        assert fleet.main(["query", str(tmp_path), *words]) == status
        line = capsys.readouterr().err
        assert message in line and line.count("\n") == 1


def test_missing_package_is_named_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    put(tmp_path, "a", own("6.1.0", "e1000", 1.0))
    connect.cache_clear()
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert fleet.main(["query", str(tmp_path), "who-copies"]) == 1
    assert capsys.readouterr().err.endswith(
        "copyscope fleet query: duckdb is missing; make .venv/.ready-fleet\n"
    )
