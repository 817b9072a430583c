# SPDX-License-Identifier: GPL-2.0-only
"""Noise of runs: the interval of the whole cost, and the disturbances that captions state."""

from typing import Any

import pytest
from builders import raw_record
from builders.documents import derive, typed, typed_whole
from copyscope.ledger.noise import of_runs, relative_half_width
from copyscope.report import page, path_drawing
from copyscope.report.study import caption
from copyscope.report.study_table import fill


def with_costs(costs: list[float]) -> dict[str, Any]:
    """Return a record whose ledger segments cost this many ns of CPU time per byte, in order."""
    raw = raw_record("one_copy")
    ledger = [segment for segment in raw["run"]["segments"] if segment["phase"] == "ledger"]
    assert len(ledger) == len(costs)
    for segment, cost in zip(ledger, costs, strict=True):
        for side, part in (("sender", 0.75), ("receiver", 0.25)):
            segment["sides"][side]["process_cpu_ns"] = round(
                cost * part * segment["sides"]["receiver"]["bytes"]
            )
    return raw


def test_the_whole_cost_has_the_interval_of_its_segments() -> None:
    """Costs 1, 2 and 3: mean 2, standard deviation 1, so that the half width is 4.3027 / sqrt 3 = 2.4842."""
    count = sum(segment["phase"] == "ledger" for segment in raw_record("one_copy")["run"]["segments"])
    assert count == 3
    assert relative_half_width(typed(with_costs([1.0, 2.0, 3.0]))) == pytest.approx(2.4842 / 2, abs=1e-4)
    assert relative_half_width(typed(with_costs([2.0, 2.0, 2.0]))) == pytest.approx(0.0, abs=1e-9)


def test_captions_state_the_disturbances_of_their_runs() -> None:
    """The first of three runs ran beside programs that used 30 % of the CPUs. The second was unsteady."""
    records = [derive(raw_record("one_copy")) for _ in range(3)]
    for record, state in zip(
        records,
        (
            {"disturbance": "busy", "others_share": 0.28, "steal_share": 0.02},
            {"disturbance": "unsteady", "spread_share": 0.2},
            {"disturbance": None, "sentence": None},
        ),
        strict=True,
    ):
        record["machine_state"] |= state
    runs = [typed_whole(record) for record in records]
    noise = "1 of 3 runs on a busy machine (other programs used up to 30 % of the CPUs), 1 of 3 runs unsteady"
    assert of_runs(runs) == noise
    assert caption(runs, fill(runs)).endswith(f"; {noise}.")
    runs[0].derived.machine_state.siblings_share = 0.9
    assert "used up to 90 % of the hyper-thread siblings" in of_runs(runs)
    runs[0].derived.machine_state.siblings_share = None
    assert of_runs(runs[2:]) == "" and "busy" not in caption(runs[2:], fill(runs[2:]))
    words = "on a busy machine (other programs used 30 % of the CPUs)"
    assert words in page.write(runs[0]).decode() and words in path_drawing.draw(runs[0])
