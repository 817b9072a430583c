"""The figures of the benchmarks in the documents: made from the results, and those that stand there now."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "bench"))

from bench import NAMES, PLANNED_S, RESULTS, ROOT
from bench_docs import BLOCK, BLOCKS, filled, observer
from bench_table import document, runs_of


def off(ours: str, ratio: float) -> dict[str, Any]:
    about = {"ours": ours, "peer": "off", "quantity": "gbps", "factors": {"size_bytes": 1024}, "pairs": 10}
    return about | {"ratio": ratio, "low": ratio - 0.01, "high": ratio + 0.01}


def test_a_block_has_both_runs_and_the_rest_of_the_text_stays() -> None:
    text = "before\n<!-- bench: observer -->\nold\n<!-- end -->\nafter\n"
    now = {"comparisons": [off("ours", 0.9), off("perf_record", 0.8)], "raw": []}
    earlier = {"comparisons": [off("ours", 0.99)], "raw": []}
    made = filled(text, {"observer": [now, earlier]})
    assert made.startswith("before\n<!-- bench: observer -->\n| goodput lost to | 1 KiB |")
    assert made.endswith("<!-- end -->\nafter\n") and "old" not in made
    # this run above the earlier one; bold is surely missed; a peer that could not run is not left out
    assert "| **10.0 % (9.0 to 11.0)**<br>1.0 % (0.0 to 2.0) | 3 % |" in made
    assert "| 20.0 % (19.0 to 21.0)<br>not measured |" in made
    assert "| **2.0 (at least 1.7)**<br>not measured | at least 3 |" in made
    assert filled(made, {"observer": [now, earlier]}) == made


def test_a_block_without_results_stays() -> None:
    text = "<!-- bench: traffic -->\nold\n<!-- end -->\n"
    assert filled(text, {}) == text


@pytest.mark.parametrize("path", ["docs/dev/bench.md", "docs/dev/notes.md"])
def test_the_figures_in_the_documents_are_those_of_the_results(path: str) -> None:
    text = (ROOT / path).read_text(encoding="utf-8")
    runs = {name: runs_of(RESULTS / f"{name}.json") for name in NAMES}
    assert {found[2] for found in BLOCK.finditer(text)} <= set(BLOCKS)
    assert BLOCK.search(text) and filled(text, runs) == text, "bench.py --table makes it again"


def test_the_table_of_results_is_that_of_the_results() -> None:
    text = (RESULTS / "README.md").read_text(encoding="utf-8")
    assert text == document(RESULTS, PLANNED_S), "bench.py --table makes it again"


def test_all_raw_results_are_json() -> None:
    for path in RESULTS.rglob("*.json"):
        assert json.loads(path.read_text(encoding="utf-8"))["machine"]


def test_newer_peers_and_their_versions_stand_in_the_table() -> None:
    """A result without versions, and without the newer mode of perf, makes the table that it made before."""
    made = [
        {"ours": name, "peer": "off", "quantity": "gbps", "factors": {"size_bytes": 64}, "ratio": ratio}
        | {"low": ratio - 0.01, "high": ratio + 0.01, "ours_median": ratio, "peer_median": 1.0, "pairs": 30}
        for name, ratio in (
            ("ours", 0.99),
            ("ours_calls", 0.95),
            ("perf_trace", 0.05),
            ("perf_trace_bpf", 0.7),
        )
    ]
    old = {"comparisons": made[:3], "raw": []}
    new = {"comparisons": made, "raw": [], "peers": {"perf": "6.16.3", "bpftrace": None}}
    before = "\n".join(observer({"observer": [old]}))
    assert "| `perf trace -s` | 95.0 %" in before and "--bpf-summary" not in before
    after = "\n".join(observer({"observer": [new, old]}))
    assert "| `perf trace -s` (6.16.3) | 95.0 %" in after
    assert "| `perf trace -s --bpf-summary` (6.16.3) | 30.0 % (29.0 to 31.0)<br>not measured |" in after
    assert "| bpftrace, the same calls |" in after
    # It is the best peer with the same information: 30 % against 5 %.
    assert "the timing of system calls: times less than the best peer | 6.0 (at least 4.8)" in after
