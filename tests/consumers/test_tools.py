# SPDX-License-Identifier: GPL-2.0-only
"""Exports opened by the programs that read them: these show the sums of the ledger."""

from __future__ import annotations

import base64
import csv
import importlib
import io
import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import stack_record
from browser import MODULES, PLACE, look
from builders.documents import typed_whole
from copyscope.base import paths
from copyscope.report.exports import FORMATS
from copyscope.report.openmetrics import PLAIN_TEXT, write_families
from copyscope.report.served_counts import ServedCounts
from copyscope.report.served_families import FAMILIES

TIMEOUT_S = 60
PPROF = shutil.which("pprof") or str(PLACE / "pprof")
PROMTOOL = shutil.which("promtool") or str(PLACE / "prometheus" / "usr" / "bin" / "promtool")
NODE_EXPORTER = PLACE / "prometheus" / "usr" / "bin" / "prometheus-node-exporter"
SPEEDSCOPE = MODULES / "speedscope" / "dist" / "release"


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return stack_record.record()


def run(*argv: str | Path, stdin: bytes = b"") -> str:
    done = subprocess.run(argv, input=stdin, capture_output=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.mark.skipif(not Path(PPROF).exists(), reason="no pprof: make deps-consumers (with Go)")
def test_pprof_shows_the_sums_of_the_ledger(record: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "run.pb.gz"
    file.write_bytes(FORMATS["pprof"].write_run(typed_whole(record)))
    copy_in = stack_record.row(record, "copy_in")
    top = run(PPROF, "-top", "-unit=ns", "-sample_index=cpu", file)
    (flat,) = re.findall(r"^ *([\d.]+)ns .* _copy_from_iter$", top, re.MULTILINE)
    assert float(flat) == pytest.approx(copy_in["cpu_ns"], abs=2)
    only = run(PPROF, "-top", "-unit=ns", "-sample_index=cpu", "-tagfocus=account=copy_out", file)
    assert "_copy_to_iter" in only and "_copy_from_iter" not in only


def database_of(text: bytes, directory: Path) -> str:
    """Load OpenMetrics text into a Prometheus database, and return its dump. promtool requires timestamps."""
    dated = re.sub(r"^(copyscope_.*)$", r"\1 1700000000", text.decode(), flags=re.MULTILINE)
    (directory / "run.om").write_text(dated)
    run(PROMTOOL, "tsdb", "create-blocks-from", "openmetrics", directory / "run.om", directory / "data")
    (directory / "data" / "wal").mkdir()  # promtool expects the write-ahead log of a server
    return run(PROMTOOL, "tsdb", "dump", directory / "data")


@pytest.mark.skipif(not Path(PROMTOOL).exists(), reason="no promtool: make deps-consumers")
def test_prometheus_reads_the_metrics_of_a_record(record: dict[str, Any], tmp_path: Path) -> None:
    shown = database_of(FORMATS["openmetrics"].write_run(typed_whole(record)), tmp_path)
    (line,) = (
        text_line
        for text_line in shown.splitlines()
        if '"copyscope_row_bytes"' in text_line and 'account="copy_in"' in text_line
    )
    assert float(line.split("}")[1].split()[0]) == stack_record.row(record, "copy_in")["bytes"]


@pytest.mark.skipif(not NODE_EXPORTER.exists(), reason="no node_exporter: make deps-consumers")
def test_the_textfile_collector_serves_the_rows_of_a_record(record: dict[str, Any], tmp_path: Path) -> None:
    text = FORMATS["prometheus"].write_run(typed_whole(record))
    run(PROMTOOL, "check", "metrics", stdin=text)
    (tmp_path / "run.prom").write_bytes(text)
    port = free_port()
    options = ("--collector.disable-defaults", "--collector.textfile", "--web.disable-exporter-metrics")
    directory = f"--collector.textfile.directory={tmp_path}"
    argv = [str(NODE_EXPORTER), *options, directory, f"--web.listen-address=127.0.0.1:{port}"]
    with subprocess.Popen(argv, stderr=subprocess.PIPE) as exporter:
        try:
            shown = page_of(f"http://127.0.0.1:{port}/metrics")
        finally:
            exporter.kill()
    assert "node_textfile_scrape_error 0" in shown
    (line,) = (
        text_line
        for text_line in shown.splitlines()
        if text_line.startswith("copyscope_row_bytes{") and 'account="copy_in"' in text_line
    )
    assert float(line.split("}")[1]) == stack_record.row(record, "copy_in")["bytes"]


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port: int = server.getsockname()[1]
        return port


def page_of(url: str) -> str:
    """Return the answer of a server that is starting."""
    deadline = time.monotonic() + TIMEOUT_S
    while True:
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
                return str(answer.read().decode())
        except urllib.error.URLError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)


@pytest.mark.skipif(not Path(PROMTOOL).exists(), reason="no promtool: make deps-consumers")
def test_prometheus_reads_every_served_metric(tmp_path: Path) -> None:
    """Each metric has a sample with a label that the format must escape."""
    counts = ServedCounts()
    for name, (_, _, labels, _) in FAMILIES.items():
        counts.own[name, tuple(f'a "{label}\\' for label in labels)] = 1.5
    shown = database_of(write_families(counts.families()).data, tmp_path)
    run(PROMTOOL, "check", "metrics", stdin=write_families(counts.families(), PLAIN_TEXT).data)
    divided = {"account_bytes", "account_cpu_seconds", "account_cpu_ratio", "zerocopy_copied_sends"}
    divided |= {"program_cpu_seconds"}
    assert all(f"copyscope_{name}" in shown for name in FAMILIES.keys() - divided)


@pytest.mark.skipif(not Path(PROMTOOL).exists(), reason="no promtool: make deps-consumers")
def test_prometheus_accepts_every_query_of_the_dashboard_and_the_cookbook(tmp_path: Path) -> None:
    """Each PromQL expression of the dashboard and of the cookbook is a valid rule."""
    docs = paths.ROOT / "docs"
    panels = json.loads((docs / "reference" / "grafana.json").read_text(encoding="utf-8"))["panels"]
    panel_queries = [
        target["expr"].replace("$__rate_interval", "1m") for panel in panels for target in panel["targets"]
    ]
    page = (docs / "4-cookbook.md").read_text(encoding="utf-8").partition("**Questions, in PromQL**\n\n")[2]
    questions = re.split(r"^    # .*\n", page.partition("\n\n")[0] + "\n", flags=re.MULTILINE)[1:]
    assert len(questions) >= 4
    rules = [{"record": f"asked:{n}", "expr": expr} for n, expr in enumerate([*panel_queries, *questions])]
    # promtool reads YAML, which includes JSON.
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "asked", "rules": rules}]}))
    assert f"{len(rules)} rules found" in run(PROMTOOL, "check", "rules", tmp_path / "rules.yml")


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze")
def test_systemd_accepts_the_unit_of_the_package(tmp_path: Path) -> None:
    """The systemd unit is valid and can be enabled."""
    unit = (paths.ROOT / "tools" / "daemon" / "copyscope.service").read_text(encoding="utf-8")
    assert "[Install]\nWantedBy=" in unit
    file = tmp_path / "copyscope.service"
    file.write_text(unit.replace("ExecStart=/usr/bin/copyscope ", f"ExecStart={sys.executable} "))
    run("systemd-analyze", "--man=no", "verify", file)  # the man page belongs to the package


def test_duckdb_reads_the_sums_of_parquet_and_csv(record: dict[str, Any], tmp_path: Path) -> None:
    python_directory = PLACE / "python"
    if not python_directory.is_dir():
        pytest.skip("no DuckDB: make deps-consumers")
    sys.path.append(str(python_directory))
    try:
        duckdb = importlib.import_module("duckdb")
    finally:
        sys.path.remove(str(python_directory))
    lines = list(csv.DictReader(io.StringIO(FORMATS["csv"].write_run(typed_whole(record)).decode())))
    for name in ("parquet", "csv"):
        file = tmp_path / f"run.{name}"
        file.write_bytes(FORMATS[name].write_run(typed_whole(record)))
        query = f"SELECT count(*), sum(cpu_ns), sum(bytes), count(cycles) FROM '{file}'"
        (totals,) = duckdb.sql(query).fetchall()
        cpu_ns = sum(int(row["cpu_ns"]) for row in lines if row["cpu_ns"])
        moved_bytes = sum(int(row["bytes"]) for row in lines if row["bytes"])
        assert totals == (len(lines), cpu_ns, moved_bytes, 0)  # no PMU: null, not 0


def test_the_flame_graph_searches(record: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "run.svg"
    file.write_bytes(FORMATS["flamegraph"].write_run(typed_whole(record)))
    ask = """
    [document.querySelector('#result').textContent, document.querySelectorAll('.m').length,
     [...document.querySelectorAll('.f')].filter(one => one.style.display).length]
    """
    answer = look(file.as_uri(), clicks=["#search"], answer="^_copy_", ask=ask, name="flamegraph")
    assert answer["messages"] == [] and answer["dialogs"] == ["search (regular expression)"]
    copies = sum(stack_record.row(record, name)["cpu_ns"] for name in ("copy_in", "copy_out"))
    total_ns = sum(row["cpu_ns"] or 0 for row in [*record["ledger"], *record["stages"]])
    assert answer["said"] == [f"^_copy_: {100 * copies / total_ns:.1f} % of the CPU time", 2, 0]


def test_the_flame_graph_zooms(record: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "run.svg"
    file.write_bytes(FORMATS["flamegraph"].write_run(typed_whole(record)))
    ask = """
    (() => {
      const frame = name => document.querySelector(`[data-n="${name}"]`);
      frame('receiver').dispatchEvent(new MouseEvent('click'));
      return [+frame('receiver').children[1].getAttribute('width'), frame('sender').style.display];
    })()
    """
    assert look(file.as_uri(), ask=ask)["said"] == [1200, "none"]


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("name", ["drawing", "flamegraph"])
def test_texts_of_a_picture_contrast_with_the_background(
    record: dict[str, Any], name: str, dark: bool, tmp_path: Path
) -> None:
    """WCAG 2 requires a contrast of 4.5. Names of frames are not on the background."""
    file = tmp_path / "run.svg"
    file.write_bytes(FORMATS[name].write_run(typed_whole(record)))
    ask = """
    (() => {
      const luminance = text => text.match(/[\\d.]+/g).slice(0, 3)
        .map(value => value / 255).map(v => v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)
        .reduce((sum, v, index) => sum + v * [0.2126, 0.7152, 0.0722][index], 0);
      const paper = luminance(getComputedStyle(document.documentElement).backgroundColor);
      return [...document.querySelectorAll('svg > text')].map(text => luminance(getComputedStyle(text).fill))
        .map(ink => (Math.max(ink, paper) + 0.05) / (Math.min(ink, paper) + 0.05));
    })()
    """
    contrasts = look(file.as_uri(), dark=dark, ask=ask, name=f"{name}-{'dark' if dark else 'light'}")["said"]
    assert contrasts and min(contrasts) >= 4.5


@pytest.mark.parametrize(("name", "file"), [("folded", "run.folded"), ("pprof", "run.pb.gz")])
def test_speedscope_opens_the_export(record: dict[str, Any], name: str, file: str, tmp_path: Path) -> None:
    """As the command speedscope does, a script beside its page passes the file."""
    if not SPEEDSCOPE.is_dir():
        pytest.skip("no speedscope: make deps-consumers")
    shutil.copytree(SPEEDSCOPE, tmp_path / "speedscope")
    data = base64.b64encode(FORMATS[name].write_run(typed_whole(record))).decode()
    (tmp_path / "run.js").write_text(f"speedscope.loadFileFromBase64('{file}', '{data}')")
    url = (tmp_path / "speedscope" / "index.html").as_uri() + f"#localProfilePath={tmp_path / 'run.js'}"
    ready = f"document.body.innerText.includes('{file}') && document.querySelector('canvas')"
    answer = look(url, wait=ready, ask="document.body.innerText", name=f"in-speedscope-{name}")
    assert file in answer["said"]
    assert not [message for message in answer["messages"] if "error" in message.lower()]
