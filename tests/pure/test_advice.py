"""Would zero-copy help? What the paragraph says of invented programs, and of the crossovers in results/."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from builders.watched import SIZE, watched_record
from copyscope import advice, ledger, paths, record
from copyscope.commands.watch import read_crossovers

Record = dict[str, Any]

CROSSOVER: Record = {
    "pair": ["one_copy", "zero_copy"],
    "threads": 1,
    "quantity": "sender_cpu_ns_per_kib",
    "where": {},
    "verdict": "crosses",
    "above": "zero_copy",
    "size_bytes": 16_384,
    "low_bytes": 8_192,
    "high_bytes": 32_768,
    "evidence": "they cross",
    "path": "nics:eth0,eth1",
    "file": "results/host/crossover/crossover.json",
}


def derived(*, local: bool = False, **options: Any) -> Record:
    raw = watched_record(**options)
    if local:
        raw["topology"] |= {"kind": "lo", "local_delivery": True}
        raw["topology"]["devices"] = [{"side": "target", "name": "lo", "driver": "loopback", "features": {}}]
        raw["topology"]["peers"] = [{"address": "127.0.0.1", "device": "lo", "local": True}]
    return ledger.derive(raw)


def said(full: Record, *rows: Record) -> str:
    made = advice.advise(full, list(rows) or None)
    assert record.validate(full | {"advice": made}) == []
    return str(made["text"])


def test_without_a_crossover_one_sentence_says_what_to_run() -> None:
    assert "no crossover was measured on this host: run sudo tools/crossover.py" in said(derived())


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "its calls are larger: it would help on that path"),
        (
            {"size_bytes": 1 << 20, "low_bytes": 1 << 19, "high_bytes": 1 << 21},
            "it would cost more than it saves",
        ),
        ({"high_bytes": None}, "8 KiB to beyond what was measured"),
        ({"high_bytes": 2 * SIZE}, "about where its calls are: no difference to expect"),
        ({"above": "one_copy"}, "pays below 16 KiB"),
        ({"verdict": "never", "size_bytes": None}, "never paid at any size"),
        ({"verdict": "always", "size_bytes": None}, "paid at every size"),
        (
            {"verdict": "undetermined", "evidence": "undetermined: no difference found; largest residual 3%"},
            "Cannot tell whether zero-copy would pay: undetermined: no difference found (against one_copy",
        ),
        ({"path": "veth"}, "measured on this host over veth only"),
    ],
)
def test_what_the_crossover_says(change: Record, words: str) -> None:
    text = said(derived(), CROSSOVER | change)
    assert words in text and CROSSOVER["file"] in text


def test_the_path_counts_first_and_then_the_newest_file() -> None:
    """Rows come newest file first."""
    newest = CROSSOVER | {"file": "newest", "path": "veth", "verdict": "never"}
    older = CROSSOVER | {"file": "older", "path": "loopback", "verdict": "never"}
    oldest = older | {"file": "oldest"}
    rows = [newest, older | {"quantity": "goodput_gbps"}, older, oldest]
    near, far = derived(local=True), derived()
    assert advice.advise(near, rows)["crossover"] == older
    assert [advice.distance(row, near) for row in (older, newest, CROSSOVER)] == [0, 1, 2]
    assert advice.advise(far, [*rows, CROSSOVER])["crossover"] == CROSSOVER


def test_what_would_stop_it() -> None:
    remote = said(derived())
    assert "lldpd[812] holds an ETH_P_ALL socket on eth0" in remote
    raw = watched_record()
    raw["machine"]["limits"]["memlock_bytes"] = 65_536
    for shape in raw["shapes"]:
        shape |= {"repeated": shape["messages"], "buffers": 64 * shape["messages"]}
    text = said(ledger.derive(raw))
    assert "memlock limit of 64 KiB holds 0 sends of 18 pages" in text
    assert "100 % of its messages begin at the address of the message before" in text
    assert "its messages are 64 buffers of 1 KiB" in text and "a packet has 17" in text
    assert "writes are small" not in text
    for row in raw["volume"]:
        row["sizes"] = [[1024, row["calls"]]]
    small = said(ledger.derive(raw))
    assert "its writes are small: half of its bytes go out in calls of 2 KiB or less" in small
    assert "its peers are on this machine (lo)" in said(derived(local=True))


def test_a_server_that_reads_files_is_told_of_sendfile() -> None:
    raw = watched_record()
    row = next(row for row in raw["samples"] if row["side"] == "target")
    raw["samples"].append({**row, "symbol": "filemap_read", "category": "syscall", "kind": "stage"})
    assert "sendfile spares both copies" in said(ledger.derive(raw))


def test_files_are_read_newest_first_and_a_broken_one_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for age, name in enumerate(("new", "old")):
        file = tmp_path / "host" / name / "crossover.json"
        file.parent.mkdir(parents=True)
        where = {"topology": "loopback"} if name == "new" else {}
        row = {**CROSSOVER, "where": where, "threads": age}
        file.write_text(json.dumps({"topology": "veth", "crossovers": [row]}))
        os.utime(file, (1000 - age, 1000 - age))
    broken = tmp_path / "host" / "broken" / "crossover.json"
    broken.parent.mkdir()
    broken.write_text("{")
    rows = read_crossovers(tmp_path / "host")
    assert rows is not None and [row["threads"] for row in rows] == [0, 1]
    assert [row["path"] for row in rows] == ["loopback", "veth"]
    assert rows[0]["file"].endswith("host/new/crossover.json")
    assert "broken/crossover.json: left out" in capsys.readouterr().err
    assert read_crossovers(tmp_path / "nobody") is None


def test_the_crossovers_of_this_tree_can_be_used() -> None:
    rows = read_crossovers(paths.ROOT / "results" / "vm")
    assert rows, "results/vm has crossovers"
    assert "Zero-copy never paid" in said(derived(local=True), *rows)
    assert "Cannot tell whether zero-copy would pay" in said(derived(), *rows)
