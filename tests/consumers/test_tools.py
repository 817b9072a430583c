"""Exports opened by the programs that read them: what they show are the sums of the ledger."""

from __future__ import annotations

import base64
import csv
import importlib
import io
import json
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import made
import pytest
from browser import MODULES, PLACE, look
from copyscope import paths
from copyscope.exports import FORMATS
from copyscope.exports.openmetrics import written
from copyscope.record.check import typed_whole
from copyscope.serving.counts import Counts
from copyscope.serving.families import FAMILIES

TIMEOUT_S = 60
PPROF = shutil.which("pprof") or str(PLACE / "pprof")
PROMTOOL = shutil.which("promtool") or str(PLACE / "prometheus" / "usr" / "bin" / "promtool")
SPEEDSCOPE = MODULES / "speedscope" / "dist" / "release"


@pytest.fixture(scope="module")
def record() -> dict[str, Any]:
    return made.record()


def run(*argv: str | Path, stdin: bytes = b"") -> str:
    done = subprocess.run(argv, input=stdin, capture_output=True, timeout=TIMEOUT_S, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return done.stdout.decode()


@pytest.mark.skipif(not Path(PPROF).exists(), reason="no pprof: make deps-consumers (with Go)")
def test_go_tool_pprof(record: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "run.pb.gz"
    file.write_bytes(FORMATS["pprof"].make(typed_whole(record)))
    copy_in = made.row(record, "copy_in")
    top = run(PPROF, "-top", "-unit=ns", "-sample_index=cpu", file)
    (flat,) = re.findall(r"^ *([\d.]+)ns .* _copy_from_iter$", top, re.MULTILINE)
    assert float(flat) == pytest.approx(copy_in["cpu_ns"], abs=2)
    tags = run(PPROF, "-tags", "-unit=B", "-sample_index=payload", file)
    assert re.search(rf"{float(copy_in['bytes'])}B .*: copy_in$|{copy_in['bytes']}B .*: copy_in$", tags, re.M)
    only = run(PPROF, "-top", "-unit=ns", "-sample_index=cpu", "-tagfocus=account=copy_out", file)
    assert "_copy_to_iter" in only and "_copy_from_iter" not in only


def database_of(text: bytes, place: Path) -> str:
    """What Prometheus' own parser of OpenMetrics makes of it; it wants to know of when each sample is."""
    dated = re.sub(r"^(copyscope_.*)$", r"\1 1700000000", text.decode(), flags=re.MULTILINE)
    (place / "run.om").write_text(dated)
    run(PROMTOOL, "tsdb", "create-blocks-from", "openmetrics", place / "run.om", place / "data")
    (place / "data" / "wal").mkdir()  # of a server that has never run
    return run(PROMTOOL, "tsdb", "dump", place / "data")


@pytest.mark.skipif(not Path(PROMTOOL).exists(), reason="no promtool: make deps-consumers")
def test_promtool(record: dict[str, Any], tmp_path: Path) -> None:
    shown = database_of(FORMATS["openmetrics"].make(typed_whole(record)), tmp_path)
    (line,) = (
        one for one in shown.splitlines() if '"copyscope_row_bytes"' in one and 'account="copy_in"' in one
    )
    assert float(line.split("}")[1].split()[0]) == made.row(record, "copy_in")["bytes"]


@pytest.mark.skipif(not Path(PROMTOOL).exists(), reason="no promtool: make deps-consumers")
def test_promtool_of_what_is_served(tmp_path: Path) -> None:
    """A sample of each metric, with a name that the format has to escape."""
    counts = Counts()
    for name, (_, _, labels, _) in FAMILIES.items():
        counts.own[name, tuple(f'a "{label}\\' for label in labels)] = 1.5
    shown = database_of(written(counts.families()), tmp_path)
    divided = {"account_bytes", "account_cpu_seconds", "account_cpu_ratio", "zerocopy_copied_sends"}
    assert all(f"copyscope_{name}" in shown for name in FAMILIES.keys() - divided)


@pytest.mark.skipif(not Path(PROMTOOL).exists(), reason="no promtool: make deps-consumers")
def test_promtool_of_what_is_asked(tmp_path: Path) -> None:
    """Each expression of the dashboard and of the cookbook, as a rule."""
    docs = paths.ROOT / "docs"
    panels = json.loads((docs / "reference" / "grafana.json").read_text(encoding="utf-8"))["panels"]
    asked = [target["expr"].replace("$__rate_interval", "1m") for one in panels for target in one["targets"]]
    page = (docs / "4-cookbook.md").read_text(encoding="utf-8").partition("**Questions, in PromQL**\n\n")[2]
    questions = re.split(r"^    # .*\n", page.partition("\n\n")[0] + "\n", flags=re.MULTILINE)[1:]
    assert len(questions) >= 4
    rules = [{"record": f"asked:{n}", "expr": expr} for n, expr in enumerate([*asked, *questions])]
    # Every JSON is a YAML.
    (tmp_path / "rules.yml").write_text(json.dumps({"groups": [{"name": "asked", "rules": rules}]}))
    assert f"{len(rules)} rules found" in run(PROMTOOL, "check", "rules", tmp_path / "rules.yml")


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="no systemd-analyze")
def test_systemd(tmp_path: Path) -> None:
    """The unit of the cookbook, and that it can be enabled."""
    page = (paths.ROOT / "docs" / "4-cookbook.md").read_text(encoding="utf-8")
    _, _, after = page.partition("copyscope.service: systemctl")
    unit = textwrap.dedent(after.partition("\n")[2].partition("\n\n")[0])
    assert "[Install]\nWantedBy=" in unit
    file = tmp_path / "copyscope.service"
    file.write_text(unit.replace("ExecStart=copyscope ", f"ExecStart={sys.executable} "))
    run("systemd-analyze", "verify", file)


def test_duckdb(record: dict[str, Any], tmp_path: Path) -> None:
    place = PLACE / "python"
    if not place.is_dir():
        pytest.skip("no DuckDB: make deps-consumers")
    sys.path.append(str(place))
    try:
        duckdb = importlib.import_module("duckdb")
    finally:
        sys.path.remove(str(place))
    lines = list(csv.DictReader(io.StringIO(FORMATS["csv"].make(typed_whole(record)).decode())))
    for name in ("parquet", "csv"):
        file = tmp_path / f"run.{name}"
        file.write_bytes(FORMATS[name].make(typed_whole(record)))
        asked = f"SELECT count(*), sum(cpu_ns), sum(bytes), count(cycles) FROM '{file}'"
        (found,) = duckdb.sql(asked).fetchall()
        whole = sum(int(one["cpu_ns"]) for one in lines if one["cpu_ns"])
        moved = sum(int(one["bytes"]) for one in lines if one["bytes"])
        assert found == (len(lines), whole, moved, 0)  # no PMU: null, not 0


def test_the_flame_graph_searches(record: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "run.svg"
    file.write_bytes(FORMATS["flamegraph"].make(typed_whole(record)))
    ask = """
    [document.querySelector('#said').textContent, document.querySelectorAll('.m').length,
     [...document.querySelectorAll('.f')].filter(one => one.style.display).length]
    """
    found = look(file.as_uri(), clicks=["#search"], answer="^_copy_", ask=ask, name="flamegraph")
    assert found["messages"] == [] and found["dialogs"] == ["search (regular expression)"]
    copies = sum(made.row(record, name)["cpu_ns"] for name in ("copy_in", "copy_out"))
    whole = sum(row["cpu_ns"] or 0 for row in [*record["ledger"], *record["stages"]])
    assert found["said"] == [f"^_copy_: {100 * copies / whole:.1f} % of the CPU time", 2, 0]


def test_the_flame_graph_zooms(record: dict[str, Any], tmp_path: Path) -> None:
    file = tmp_path / "run.svg"
    file.write_bytes(FORMATS["flamegraph"].make(typed_whole(record)))
    ask = """
    (() => {
      const frame = name => document.querySelector(`[data-n="${name}"]`);
      frame('receiver').dispatchEvent(new MouseEvent('click'));
      return [+frame('receiver').children[1].getAttribute('width'), frame('sender').style.display];
    })()
    """
    assert look(file.as_uri(), ask=ask)["said"] == [1200, "none"]


@pytest.mark.parametrize(("name", "file"), [("folded", "run.folded"), ("pprof", "run.pb.gz")])
def test_speedscope(record: dict[str, Any], name: str, file: str, tmp_path: Path) -> None:
    """As its command does: a page next to its own that hands over the file."""
    if not SPEEDSCOPE.is_dir():
        pytest.skip("no speedscope: make deps-consumers")
    shutil.copytree(SPEEDSCOPE, tmp_path / "speedscope")
    data = base64.b64encode(FORMATS[name].make(typed_whole(record))).decode()
    (tmp_path / "run.js").write_text(f"speedscope.loadFileFromBase64('{file}', '{data}')")
    url = (tmp_path / "speedscope" / "index.html").as_uri() + f"#localProfilePath={tmp_path / 'run.js'}"
    ready = f"document.body.innerText.includes('{file}') && document.querySelector('canvas')"
    found = look(url, wait=ready, ask="document.body.innerText", name=f"in-speedscope-{name}")
    assert file in found["said"]
    assert not [one for one in found["messages"] if "error" in one.lower()]
