# SPDX-License-Identifier: GPL-2.0-only
"""Adding an account takes one row of a table: an invented account appears wherever accounts appear."""

import csv
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import get_args

import pytest
from builders import phase_total, raw_record
from builders.invented_account import FUNCTION, PART
from builders.parts import SENDER, SENDER_STAGES
from copyscope.base.paths import ROOT
from copyscope.record import store
from copyscope.taxonomy import accounts
from copyscope.taxonomy.accounts import ACCOUNTS, TABLE, Leg

ACCOUNT = """\
    Account(
        name="bounce",
        title="copy to a bounce buffer",
        side="sender",
        context="process",
        group="copies",
        arrow="copy",
        leg="way",
        colour="black",
        hatch="++",
        caption="bounce buffer: packet -> a page that the device reaches",
        line="the device cannot reach the packet: the kernel copies it",
        sentence="the copy to a bounce buffer takes",
        meaning="The kernel copies a packet for a device that cannot reach all memory.",
        column="bounce",
    ),
"""
TITLE = "copy to a bounce buffer"
FILES_NAMING_AN_ACCOUNT_MAX = 8


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory of outputs of a copy of the package with one account more (a row in two files)."""
    copy, outputs = tmp_path_factory.mktemp("copy"), tmp_path_factory.mktemp("made")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "tools" / "copyscope", copy / "tools" / "copyscope", ignore=ignored)
    shutil.copytree(ROOT / "requirements", copy / "requirements")
    (copy / ".output").symlink_to(ROOT / ".output")
    taxonomy = copy / "tools" / "copyscope" / "taxonomy"
    add_before(taxonomy / "accounts.py", '    Account(\n        name="completion"', ACCOUNT)
    add_before(taxonomy / "taxonomy.tsv", "\n# Softirq:", f"inclusive\t{FUNCTION}\tbounce\tall\n")
    script = Path(__file__).parent / "builders" / "invented_account.py"
    path = os.pathsep.join((str(copy / "tools"), str(script.parent.parent)))
    environment = {**os.environ, "PYTHONPATH": path}
    subprocess.run([sys.executable, "-P", "-B", str(script), str(outputs)], check=True, env=environment)
    return outputs


def add_before(path: Path, line_below: str, row: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(line_below) == 1
    path.write_text(text.replace(line_below, row + line_below), encoding="utf-8")


def text_of(outputs: Path, name: str) -> str:
    return (outputs / name).read_text(encoding="utf-8")


def test_record_has_the_row_of_the_invented_account_with_its_share_of_the_time(outputs: Path) -> None:
    (row,) = [
        row for row in store.read_document(outputs / "run.json")["ledger"] if row["account"] == "bounce"
    ]
    parts_in_all = sum(share[-1] for share in (*SENDER_STAGES, *SENDER["one_copy"])) + PART
    cpu_ns = phase_total(raw_record("one_copy"), "sender", "process_cpu_ns", "ledger")
    assert row["cpu_ns"] == pytest.approx(cpu_ns * PART / parts_in_all, rel=0.01)
    assert (row["side"], row["context"], row["bytes"]) == ("sender", "process", None)
    assert row["reasons"]["bytes"] == "no hook counts these bytes; their time is sampled"


def test_screens_show_the_invented_account_with_its_meaning_and_its_position_on_the_path(
    outputs: Path,
) -> None:
    assert re.search(rf"^ *{TITLE} +sender ", text_of(outputs, "first.txt"), re.MULTILINE)
    tables = text_of(outputs, "all.txt")
    assert re.search(rf"^{TITLE} +sender +process ", tables, re.MULTILINE)
    explained = text_of(outputs, "explained.txt")
    assert f"{TITLE}: The kernel copies a packet for a device" in explained.replace("\n    ", " ")
    crossing, _, receiving = explained.partition("[ receiver's socket ]")
    caption = "COPY  bounce buffer: packet -> a page that the device reaches"
    assert caption in crossing.partition("[ sender's socket")[2] and caption not in receiving


def test_sentence_and_metrics_of_a_watched_program_have_the_invented_account(outputs: Path) -> None:
    record = store.read_document(outputs / "watched.json")
    sentence = record["verdict"]["sentence"]
    (bounds,) = re.findall(r"the copy to a bounce buffer takes (\d+) to (\d+) % of its CPU time", sentence)
    assert int(bounds[0]) < 25 < int(bounds[1])
    assert re.search(
        r'account_cpu_ratio\{account="bounce",side="target"\} 0\.2', text_of(outputs, "served.txt")
    )


def test_exports_of_a_run_have_the_invented_account(outputs: Path) -> None:
    page = text_of(outputs, "run.html")
    assert f"{TITLE} (sender)" in page
    assert TITLE in text_of(outputs, "run.drawing")
    (line,) = [row for row in csv.DictReader((outputs / "run.csv").open()) if row["name"] == "bounce"]
    assert (line["kind"], line["side"]) == ("account", "sender") and float(line["cpu_ns"]) > 0
    metrics = text_of(outputs, "run.openmetrics")
    assert re.search(r'row_cpu_seconds\{[^}]*account="bounce"[^}]*\} 0\.\d+', metrics)


def test_report_of_a_sweep_has_the_invented_account_in_table_page_and_plot(outputs: Path) -> None:
    directory = outputs / "host" / "demo"
    lines = [row for row in csv.DictReader((directory / "ledger.csv").open()) if row["category"] == "bounce"]
    assert {(row["strategy"], row["kind"]) for row in lines} == {
        ("one_copy", "account"),
        ("zero_copy", "account"),
    }
    assert f"{TITLE} (sender, process)" in text_of(directory, "report.html")
    assert json.loads(text_of(outputs, "legend.json"))[TITLE] == [[0.0, 0.0, 0.0, 1.0], "++"]


def test_few_files_name_an_account() -> None:
    """Other files ask the table for accounts with a property."""
    package = Path(accounts.__file__).parents[1]
    naming = [path for path in package.rglob("*.py") if '"copy_in"' in path.read_text(encoding="utf-8")]
    assert len(naming) <= FILES_NAMING_AN_ACCOUNT_MAX


def test_each_row_is_complete_and_no_two_have_the_same_words() -> None:
    assert [*ACCOUNTS] == [account.name for account in TABLE]
    for key in ("title", "caption", "line", "sentence", "meaning"):
        texts = [getattr(account, key) for account in TABLE]
        assert all(texts) and len({*texts}) == len(texts)
    # The row of a late copy is found by a comparison, which needs words for it.
    assert all(bool(account.appeared and account.amount) == (account.arrow == "late") for account in TABLE)
    assert {account.leg for account in TABLE} == {*get_args(Leg), None}
