"""Samples of one burst are neighbours: a row's interval follows from how much groups of bursts differ."""

from typing import Any

import builders
import pytest
from copyscope import stats
from copyscope.ledger.attribution import GROUPS_AT_LEAST, SideTime, Weights, as_one, share_of
from copyscope.ledger.derive import derive
from copyscope.ledger.program.live import add_samples
from copyscope.record import store
from copyscope.taxonomy.samples import to_record
from copyscope.taxonomy.taxonomy import Taxonomy

COPY, REST, NEVER = (
    ("account", "copy_in", "process"),
    ("stage", "tcp", "process"),
    ("account", "pin", "process"),
)
TAXONOMY = Taxonomy.load()


def _side(groups: dict[Any, list[float]], cluster: float = 1000.0) -> SideTime:
    samples = {key: round(sum(of)) for key, of in groups.items()}
    return SideTime(Weights(samples, dict.fromkeys(samples, 1.0), groups), "cpu-clock", 1.0, None, cluster)


def test_a_share_that_is_the_same_in_each_group_is_as_good_as_of_independent_samples() -> None:
    time = _side({COPY: [30.0] * 8, REST: [70.0] * 8})
    assert share_of(time, [COPY]) == stats.wilson(240, 800)


def test_a_share_that_differs_between_groups_is_worth_less() -> None:
    """All of a copy in every second group: 8/7 x 8 x 50 x 50 against 800 x 1/2 x 1/2, by Student's t."""
    time = _side({COPY: [100.0, 0.0] * 4, REST: [0.0, 100.0] * 4})
    neighbours = 8 / 7 * 8 * 2500 / 200 * (2.3646 / 1.959964) ** 2
    assert as_one(time, [COPY]) == pytest.approx(neighbours, rel=1e-3)
    found = share_of(time, [COPY])
    assert found.high - found.low > 8 * (stats.wilson(400, 800).high - stats.wilson(400, 800).low)


def test_no_more_count_as_one_than_there_are_in_a_burst() -> None:
    time = _side({COPY: [100.0, 0.0] * 4, REST: [0.0, 100.0] * 4}, cluster=12.0)
    assert share_of(time, [COPY]) == stats.wilson(400 / 12, 800 / 12)


def test_too_few_groups_say_nothing_and_all_of_a_burst_count_as_one() -> None:
    few = GROUPS_AT_LEAST - 1
    time = _side(
        {COPY: [10.0] * few + [0.0] * (8 - few), REST: [30.0] * few + [0.0] * (8 - few)}, cluster=20.0
    )
    assert as_one(time, [COPY]) == 20.0


def test_of_a_row_without_samples_the_others_say_how_alike_neighbours_are() -> None:
    time = _side({COPY: [100.0, 0.0] * 4, REST: [0.0, 100.0] * 4})
    assert as_one(time, [NEVER]) == as_one(time) > 100
    assert share_of(time, [NEVER]).low == 0
    assert share_of(time, [NEVER]).high > 10 * stats.wilson(0, 800).high


def _record(differ: bool) -> dict[str, Any]:
    """The receiver sampled in 40 bursts: its copies alike in all groups, or all in half of them."""
    raw = builders.raw_record("one_copy")
    for row in raw["samples"]:
        if row["side"] == "receiver":
            part = row["samples"] // 8
            of = [part] * 7 + [row["samples"] - 7 * part]
            if differ and row["category"] == "copy_out":
                of = [row["samples"] - row["samples"] // 2, 0, row["samples"] // 2, 0, 0, 0, 0, 0]
            row["samples_of_group"] = of
    samples = sum(row["samples"] for row in raw["samples"] if row["side"] == "receiver")
    raw["sampler"]["bursts"]["receiver"] |= {
        "count": 40,
        "samples": samples,
        "samples_squared": 40 * (samples // 40) ** 2,
    }
    return derive(raw)


def _copy_out(record: dict[str, Any]) -> tuple[float, float]:
    (row,) = [row for row in record["ledger"] if row["account"] == "copy_out" and row["side"] == "receiver"]
    return row["cpu_ns"], row["ci"]["high_ns"] - row["ci"]["low_ns"]


def test_the_ledger_widens_the_interval_and_leaves_the_value() -> None:
    without = derive(builders.raw_record("one_copy"))
    alike, differing = _record(differ=False), _record(differ=True)
    assert store.validate(differing) == []
    assert _copy_out(alike)[0] == _copy_out(differing)[0] == _copy_out(without)[0]
    assert _copy_out(alike)[1] == pytest.approx(_copy_out(without)[1], rel=0.1)
    assert _copy_out(differing)[1] > 2 * _copy_out(without)[1]


def test_groups_are_added_up_with_the_samples() -> None:
    stack = {
        "side": "sender",
        "event": "cpu-clock",
        "frames": ["_copy_from_iter", "tcp_sendmsg"],
        "weight": 1,
    }
    told = [
        {**stack, "samples": 3, "samples_of_group": [1, 0, 2, 0, 0, 0, 0, 0]},
        {**stack, "samples": 5, "samples_of_group": [0, 0, 4, 1, 0, 0, 0, 0]},
    ]
    rows = to_record(told, TAXONOMY)
    assert [row["samples_of_group"] for row in rows] == [[1, 0, 6, 1, 0, 0, 0, 0]]
    assert "samples_of_group" not in to_record([{**stack, "samples": 3}], TAXONOMY)[0]
    (twice,) = add_samples([rows, rows])
    assert (twice["samples"], twice["samples_of_group"]) == (16, [2, 0, 12, 2, 0, 0, 0, 0])
    assert rows[0]["samples_of_group"] == [1, 0, 6, 1, 0, 0, 0, 0]
