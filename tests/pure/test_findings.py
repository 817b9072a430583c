# SPDX-License-Identifier: GPL-2.0-only
"""Adding a finding takes one rule, and adding a server takes one table of servers.toml."""

import argparse
import io
import json
import re
from collections import Counter
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, get_args

import pytest
from builders.advised import named, with_advice
from builders.documents import derive, typed_whole, validate
from builders.samples import with_file_reads
from builders.watched import watched_record
from copyscope.commands import watch
from copyscope.judge import advice, servers
from copyscope.judge.evidence import Evidence
from copyscope.judge.findings import FindingRule, RemedyTerms
from copyscope.record import store
from copyscope.record.run import Run
from copyscope.show import first_screen
from rich.console import Console

Record = dict[str, Any]


def zerocopy_sends(evidence: Evidence) -> Iterator[dict[str, str]]:
    yield {"sends": f"{evidence.zerocopy_sends:,}"}


# The record has nine segments of 10,000 calls with MSG_ZEROCOPY. A quarter of the samples pins pages.
PROBLEM = FindingRule(
    "problem",
    "invented_problem",
    zerocopy_sends,
    "{sends} sends left on a Sunday",
    "the calendar has seven days",
    "wait until Monday",
    cost=("pin",),
)
REMEDY = FindingRule(
    "remedy",
    "fewer pages",
    zerocopy_sends,
    "{how} saves {saving} of {sends} sends",
    remedy=RemedyTerms(
        "zerocopy",
        lambda evidence: evidence.share(("pin",)),
        unknown=("n/a", "pages were not sampled"),
        meaning="Pages are larger. By samples in pinning.",
    ),
)
OBSTACLE = FindingRule("path", "sea", zerocopy_sends, "a sea", "{sends} sends cross a sea")


def screen(run: Run) -> str:
    out = io.StringIO()
    console = Console(file=out, width=100, height=60, force_terminal=True, color_system=None)
    first_screen.render(run, console, explain=True)
    return " ".join(out.getvalue().split())


def report(run: Run, *, why: bool) -> Record:
    """Add the sections of `why` or `advise` as the command does; return the record as its JSON has it."""
    watch.add_advice(
        run, argparse.Namespace(advise=not why, why=why, crossover=False, measure=False), nullcontext()
    )
    record = dict(json.loads(store.serialise(run)))
    assert validate(record) == []
    return record


def test_new_finding_needs_only_a_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advice, "FINDINGS", (*advice.FINDINGS, PROBLEM, REMEDY, OBSTACLE))
    monkeypatch.setattr(watch, "all_results", lambda _: [])
    run = typed_whole(derive(watched_record(zerocopy=True, copied=0)))

    (problem,) = report(run, why=True)["why"]["problems"]
    assert problem["code"] == "invented_problem" and problem["what"] == "90,000 sends left on a Sunday"
    assert problem["cpu"]["share"] == pytest.approx(0.25)
    assert "1. 90,000 sends left on a Sunday (25.0 % of its CPU time, 22 to 29)" in screen(run)
    assert "the calendar has seven days change: wait until Monday" in screen(run)

    section = report(run, why=False)["advice"]
    (remedy,) = (row for row in section["remedies"] if row["name"] == "fewer pages")
    assert (remedy["answer"], remedy["how"]) == ("maybe", "`MSG_ZEROCOPY`")
    assert remedy["why"] == "`MSG_ZEROCOPY` saves 22 to 29 % of 90,000 sends"
    assert remedy["saves"] == pytest.approx(
        {"least_share": 0.218, "most_share": 0.286, "likely_share": None}, abs=0.001
    )
    assert "90,000 sends cross a sea" in section["stoppers"]
    assert "fewer pages maybe `MSG_ZEROCOPY` saves 22 to 29 % of 90,000 sends" in screen(run)
    assert "Pages are larger. By samples in pinning." in screen(run)


def test_codes_are_unique_and_obstacles_of_remedies_are_in_the_table() -> None:
    codes = Counter(rule.code for rule in advice.FINDINGS)
    assert max(codes.values()) == 1
    obstacles = {rule.code for row in advice.FINDINGS if row.remedy for rule in row.remedy.stopped_by}
    assert obstacles and obstacles <= codes.keys()


def test_explanation_of_a_remedy_fits_one_line() -> None:
    for rule in advice.FINDINGS:
        assert (rule.kind == "remedy") is (rule.remedy is not None)
        assert rule.remedy is None or 0 < len(rule.remedy.meaning) <= 78


SERVER = """
[[servers]]
name = "Gopherd"
processes = "gopherd"
code = "gopherd"
serves_files = true
[servers.settings]
sendfile = "`burrow on`"
"""


def test_new_server_needs_only_a_table_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "servers.toml"
    file.write_text(SERVER + servers.FILE.read_text())
    monkeypatch.setattr(servers, "FILE", file)
    servers.known_servers.cache_clear()
    raw = with_file_reads(named(watched_record(), "gopherd"))
    try:
        section = with_advice(raw)["advice"]
    finally:
        servers.known_servers.cache_clear()
    remedies = {row["name"]: row for row in section["remedies"]}
    assert section["answer"].startswith("gopherd: `burrow on` may save ")
    assert remedies["io_uring"]["why"].startswith("saves at most ")


def test_servers_in_the_file_have_patterns_and_known_settings() -> None:
    rows = servers.known_servers()
    used = {rule.remedy.setting for rule in advice.FINDINGS if rule.remedy}
    # Two settings stand for `larger_sends`: of a server with batched requests, and of a relay.
    assert set(get_args(servers.Setting)) == used | {"batched_answers", "larger_relays"}
    assert [row.name for row in rows].count("") == 1 and rows[-1].name == ""
    for row in rows:
        assert re.compile(row.processes) and re.compile(row.code)
