# SPDX-License-Identifier: GPL-2.0-only
"""Exports of a saved record: the reader of each format accepts it, and its sums are those of the ledger."""

import csv
import gzip
import io
import json
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from builders import raw_record, write
from builders.documents import derive, typed_whole
from builders.stacks import record_with_stacks
from builders.watched import watched_record
from copyscope.base.database import connect
from copyscope.base.errors import RunError
from copyscope.commands import show
from copyscope.report import page
from copyscope.report.costs import costs
from copyscope.report.exports import FORMATS
from copyscope.taxonomy.samples import to_record, to_stacks, user_callers
from copyscope.taxonomy.taxonomy import Taxonomy

Record = dict[str, Any]
# `go tool pprof` is not used, because it compiles itself for a minute.
PPROF = os.environ.get("PPROF") or shutil.which("pprof")
# Stacks as the collector reports them, leaf first.
STACKS = [
    ("sender", ["_copy_from_iter", "tcp_sendmsg_locked", "tcp_sendmsg", "do_syscall_64"], 30),
    ("sender", ["_copy_from_iter", "skb_do_copy_data_nocache", "tcp_sendmsg_locked", "do_syscall_64"], 10),
    ("sender", ["tcp_write_xmit", "tcp_sendmsg_locked", "tcp_sendmsg", "do_syscall_64"], 20),
    ("sender", [], 5),
    ("receiver", ["_copy_to_iter", "skb_copy_datagram_iter", "tcp_recvmsg", "do_syscall_64"], 25),
    # The idle loop belongs to no side, and appears in no export.
    ("other", ["default_idle", "do_idle"], 400),
]


@pytest.fixture(scope="module")
def record() -> Record:
    return record_with_stacks(STACKS)


def ledger_ns(record: Record) -> dict[tuple[str, str, str], int]:
    sums: dict[tuple[str, str, str], int] = defaultdict(int)
    for name in ("ledger", "stages"):
        for row in record[name]:
            if row["cpu_ns"]:
                sums[row["side"], row["context"], row.get("account") or row["stage"]] += row["cpu_ns"]
    return dict(sums)


def varint(stream: io.BytesIO) -> int:
    """Return the next variable-length integer of a protocol buffer.

    See https://protobuf.dev/programming-guides/encoding/.
    """
    value = shift = 0
    while True:
        (byte,) = stream.read(1)
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return value


def fields(data: bytes) -> Iterator[tuple[int, Any]]:
    """Yield the fields of a protocol buffer message: number, and value or bytes."""
    stream = io.BytesIO(data)
    while stream.tell() < len(data):
        tag = varint(stream)
        assert tag & 7 in (0, 2)
        yield tag >> 3, stream.read(varint(stream)) if tag & 7 == 2 else varint(stream)


def numbers(data: bytes) -> list[int]:
    """Return the integers of a packed field."""
    stream, values = io.BytesIO(data), []
    while stream.tell() < len(data):
        values.append(varint(stream))
    return values


def test_stacks_add_up_to_the_samples_without_the_idle_loop(record: Record) -> None:
    assert sum(stack["samples"] for stack in record["stacks"]) == 90
    assert "default_idle" not in json.dumps(record["stacks"])
    roots = {stack["frames"].split(";")[0] for stack in record["stacks"]}
    assert roots == {"do_syscall_64", "[user]"}


def test_costs_equal_the_rows_of_the_ledger(record: Record) -> None:
    sums: dict[tuple[str, str, str], int] = defaultdict(int)
    for cost in costs(typed_whole(record)):
        sums[cost.side, cost.where, cost.account] += cost.ns
    expected = ledger_ns(record)
    assert {key for key, ns in sums.items() if ns} == set(expected)
    assert all(abs(sums[key] - ns) <= len(STACKS) for key, ns in expected.items())


def test_folded_export_has_stacks_and_nanoseconds(record: Record) -> None:
    lines = dict(
        line.rsplit(" ", 1) for line in FORMATS["folded"].write_run(typed_whole(record)).decode().splitlines()
    )
    stack = "sender;do_syscall_64;tcp_sendmsg;tcp_sendmsg_locked;_copy_from_iter"
    copy_in = next(row for row in record["ledger"] if row["account"] == "copy_in")
    assert int(lines[stack]) == round(copy_in["cpu_ns"] * 30 / 40)


def test_pprof_has_cpu_time_labels_and_mappings(record: Record) -> None:
    message = list(fields(gzip.decompress(FORMATS["pprof"].write_run(typed_whole(record)))))
    strings = [value.decode() for field, value in message if field == 6]
    assert strings[0] == ""
    kinds = [{key: strings[at] for key, at in fields(value)} for field, value in message if field == 1]
    assert kinds == [{1: "cpu", 2: "nanoseconds"}]
    mappings = {
        dict(fields(value))[1]: strings[dict(fields(value))[5]] for field, value in message if field == 3
    }
    assert mappings == {1: "traffic", 2: "[kernel.kallsyms]"}
    names = {
        dict(fields(value))[1]: strings[dict(fields(value))[2]] for field, value in message if field == 5
    }
    lines = {dict(fields(v))[1]: dict(fields(dict(fields(v))[4]))[1] for field, v in message if field == 4}
    mapped = {names[dict(fields(v))[1]]: dict(fields(v)).get(2) for field, v in message if field == 4}
    assert (mapped["_copy_from_iter"], mapped["[user]"], mapped["sender"]) == (2, 0, 0)
    sums: dict[str, int] = defaultdict(int)
    stacks = set()
    for field, value in message:
        if field != 2:
            continue
        places, values, labels = [], [], {}
        for key, part in fields(value):
            if key == 1:
                places = numbers(part)
            elif key == 2:
                values = numbers(part)
            else:
                label = dict(fields(part))
                labels[strings[label[1]]] = strings[label[2]]
        assert set(labels) == {"account", "side", "where"}
        stacks.add(tuple(names[lines[location]] for location in places))
        (cpu_ns,) = values
        sums[labels["account"]] += cpu_ns
    assert ("_copy_from_iter", "tcp_sendmsg_locked", "tcp_sendmsg", "do_syscall_64", "sender") in stacks
    row = next(row for row in record["ledger"] if row["account"] == "copy_in")
    assert abs(sums["copy_in"] - row["cpu_ns"]) <= 2


def test_pprof_names_the_source_line_of_the_caller_of_a_copy() -> None:
    raw = watched_record()
    row: Any = {"side": "target", "event": "cpu-clock", "frames": [], "copy": "memmove", "samples": 30}
    row |= {"weight": 30 * 250_000, "weight_squared": 30 * 250_000.0**2}
    row |= {
        "caller": "main.F[struct { a; b }]",
        "caller_file": "/bin/x",
        "source": "/src/a.go:7",
        "uncalled": "",
    }
    less = row | {"source": "/src/a.go:9", "samples": 3}
    taxonomy = Taxonomy.load()
    raw |= {"samples": to_record([row], taxonomy), "stacks": to_stacks([row], taxonomy)}
    raw["user_callers"] = user_callers([row, less])
    run = typed_whole(derive(raw))
    assert b"target;[user];main.F[struct { a, b }];memmove " in FORMATS["folded"].write_run(run)
    message = list(fields(gzip.decompress(FORMATS["pprof"].write_run(run))))
    strings = [value.decode() for field, value in message if field == 6]
    functions = [dict(fields(value)) for field, value in message if field == 5]
    (caller,) = (function for function in functions if strings[function[2]].startswith("main.F"))
    (location,) = (
        dict(fields(value)) for field, value in message if field == 4 and dict(fields(value))[1] == caller[1]
    )
    assert strings[caller[4]] == "/src/a.go" and dict(fields(location[4]))[2] == 7


@pytest.mark.skipif(PPROF is None, reason="no pprof here: go build -o pprof cmd/pprof, and name it in PPROF")
def test_pprof_tool_reads_the_export(record: Record, tmp_path: Path) -> None:
    file = tmp_path / "run.pb.gz"
    file.write_bytes(FORMATS["pprof"].write_run(typed_whole(record)))
    argv = [str(PPROF), "-top", "-sample_index=cpu", str(file)]
    done = subprocess.run(argv, capture_output=True, text=True, check=True, timeout=60)
    assert re.search(r"_copy_from_iter$", done.stdout, re.MULTILINE)


def test_openmetrics_parser_reads_the_export(record: Record) -> None:
    parser = pytest.importorskip("prometheus_client.openmetrics.parser", reason="make .venv/.ready-serve")
    text = FORMATS["openmetrics"].write_run(typed_whole(record)).decode()
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    assert len(families) == text.count("# TYPE ") >= 6
    for name, family in families.items():
        assert family.type in ("gauge", "info") and family.documentation
        assert not family.unit or name.endswith(f"_{family.unit}")
    row = next(row for row in record["ledger"] if row["account"] == "copy_in")
    samples = [
        sample for sample in families["copyscope_row_bytes"].samples if sample.labels["account"] == "copy_in"
    ]
    assert [sample.value for sample in samples if sample.labels["side"] == "sender"] == [row["bytes"]]


def test_the_textfile_collector_of_node_exporter_reads_the_export(record: Record) -> None:
    parser = pytest.importorskip("prometheus_client.parser", reason="make .venv/.ready-serve")
    text = FORMATS["prometheus"].write_run(typed_whole(record)).decode()
    families = {family.name: family for family in parser.text_string_to_metric_families(text)}
    # node_exporter refuses types of OpenMetrics such as `info`, and reads `# EOF` as a comment.
    assert {family.type for family in families.values()} == {"gauge"} and "# EOF" not in text
    (valid,) = families["copyscope_valid"].samples
    assert valid.value == float(record["verdict"]["valid"])


def test_missing_prometheus_client_is_named(record: Record, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(RunError, match=r"^prometheus_client is missing; make .venv/.ready-serve"):
        FORMATS["openmetrics"].write_run(typed_whole(record))


def test_csv_export_has_every_row(record: Record) -> None:
    lines = list(csv.DictReader(io.StringIO(FORMATS["csv"].write_run(typed_whole(record)).decode())))
    assert len(lines) == len(record["ledger"]) + len(record["stages"])
    row = next(row for row in record["ledger"] if row["account"] == "copy_in")
    line = next(row for row in lines if row["name"] == "copy_in")
    assert (int(line["bytes"]), int(line["cpu_ns"]), line["cycles"]) == (row["bytes"], row["cpu_ns"], "")


def test_a_flame_graph_is_as_wide_as_its_time(record: Record) -> None:
    root = ET.fromstring(FORMATS["flamegraph"].write_run(typed_whole(record)))
    name = "{http://www.w3.org/2000/svg}"
    widths: dict[str, float] = defaultdict(float)
    for box in root.iter(f"{name}g"):
        widths[box.attrib["data-n"]] += float(box.attrib["data-w"])
    expected = ledger_ns(record)
    total_ns = sum(expected.values())
    share = sum(ns for (side, _, _), ns in expected.items() if side == "receiver") / total_ns
    assert widths["receiver"] == pytest.approx(1200 * share, abs=1)
    assert widths["all"] == pytest.approx(1200)


@pytest.mark.parametrize("kind", ["without stacks", "watched", "nothing sampled"])
def test_every_record_can_be_exported(kind: str) -> None:
    raw = watched_record() if kind == "watched" else raw_record("zero_copy")
    if kind == "nothing sampled":
        raw["samples"] = []
    record = derive(raw)
    for name, chosen in FORMATS.items():
        assert chosen.write_run(typed_whole(record)) or (kind, name) == ("nothing sampled", "folded")


def test_missing_duckdb_is_named_with_a_next_step(
    record: Record, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    write(record, tmp_path / "run.json")
    connect.cache_clear()
    monkeypatch.setitem(sys.modules, "duckdb", None)
    assert show.main([str(tmp_path / "run.json"), "--export", "parquet"]) == 1
    assert "duckdb is missing; make .venv/.ready-fleet" in capsys.readouterr().err


def test_show_writes_an_export(
    record: Record, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    file = tmp_path / "run.json"
    write(record, file)
    assert show.main([str(file), "--export", "csv"]) == 0
    assert capsysbinary.readouterr().out == FORMATS["csv"].write_run(typed_whole(record))
    assert show.main([str(file), "--export", "pprof", "--output", str(tmp_path / "x.pb.gz")]) == 0
    assert (tmp_path / "x.pb.gz").read_bytes() == FORMATS["pprof"].write_run(typed_whole(record))
    write({key: value for key, value in record.items() if key != "stacks"}, file)
    assert show.main([str(file), "--export", "folded"]) == 0
    assert b"no stacks in this record" in capsysbinary.readouterr().err
    assert show.main([str(file), "--output", "x"]) == 2
    file.write_text(json.dumps([record, record]))
    assert show.main([str(file), "--export", "csv"]) == 2


def test_the_page_of_a_watched_program_has_the_shares_of_its_screen() -> None:
    record = derive(watched_record())
    record["stages"].append(
        {**record["stages"][0], "side": "other", "stage": "tcp_ip", "context": "softirq", "cpu_ns": 10**9}
    )
    page_text = " ".join(re.sub("<[^>]*>", " ", page.write(typed_whole(record)).decode()).split())
    drawn = page_text.partition("The path of a byte Total")[2].partition("Ledger")[0]
    shares = [float(number) for number in re.findall(r"([0-9.]+)%", drawn)]
    assert sum(shares) == pytest.approx(100, abs=1) and "TCP/IP (other tasks, softirq)" in drawn
    assert "(target" not in drawn
