# SPDX-License-Identifier: GPL-2.0-only
"""Rate of false alarms: how often a comparison of identical measured runs shows a regression.

results/vm/ways has three runs of each setting. Two of them are a block of identical runs.
"""

import random
from typing import Any

import pytest
from builders.documents import typed_runs, with_derived_sections
from builders.sweep import kept
from copyscope.base import paths
from copyscope.commands.compare import REPEATS
from copyscope.judge import difference
from copyscope.judge.difference import (
    CPU,
    GOODPUT,
    WORSE,
    ComparisonOptions,
    metric_row,
    read_metric,
    verdict_of,
)

WAYS = paths.RESULTS / "vm" / "ways"
BLOCKS, DRAWS = 48, 400


@pytest.mark.all
def test_at_most_two_of_forty_comparisons_of_identical_runs_show_a_regression(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Choose as many random blocks as `compare` runs, with the two runs of a block in random order."""
    chance = random.Random(1)
    by_id = {record["run"]["id"]: record for record in kept(WAYS)}
    names = sorted(run_id.removesuffix("-0") for run_id in by_id if run_id.endswith("-0"))
    blocks: list[list[Any]] = []
    for name in chance.sample(names, BLOCKS):
        runs = typed_runs(with_derived_sections(by_id[f"{name}-{number}"]) for number in (0, 1))
        read = [{metric: read_metric(run, metric) for metric in (GOODPUT, CPU)} for run in runs]
        blocks += [read] * all(all(run.values()) for run in read)  # the strategy `null` delivers no bytes
    monkeypatch.setattr(difference, "read_metric", lambda run, name: run[name])
    alarms = 0
    for _ in range(DRAWS):
        pairs = [chance.sample(block, 2) for block in chance.sample(blocks, REPEATS)]
        groups = [first for first, _ in pairs], [second for _, second in pairs]
        rows = (metric_row(*groups, name, ComparisonOptions(paired=True)) for name in (GOODPUT, CPU))
        alarms += verdict_of([row for row in rows if row]) == WORSE
    assert alarms / DRAWS <= 2 / 40
