"""How often are equal runs called a regression? By equal runs that were made.

results/vm/published measured each setting three times: two runs of one setting are a block of equal ones.
"""

import random
from typing import Any

import pytest
from builders.sweep import kept
from copyscope import paths
from copyscope.commands.compare import REPEATS
from copyscope.judge import difference
from copyscope.judge.difference import CPU, GOODPUT, WORSE, How, metric_row, read_metric, verdict_of
from copyscope.judge.metrics import typed_runs
from copyscope.ledger.derive import whole

PUBLISHED = paths.RESULTS / "vm" / "published"
BLOCKS, DRAWS = 48, 400


@pytest.mark.all
def test_two_of_forty_comparisons_of_equal_runs_are_called_a_regression_at_most(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As many blocks as `compare` runs, chosen by chance; which of two is first is chance, too."""
    chance = random.Random(1)
    by_id = {record["run"]["id"]: record for record in kept(PUBLISHED)}
    names = sorted(run_id.removesuffix("-0") for run_id in by_id if run_id.endswith("-0"))
    blocks: list[list[Any]] = []
    for name in chance.sample(names, BLOCKS):
        runs = typed_runs(whole(by_id[f"{name}-{number}"]) for number in (0, 1))
        read = [{metric: read_metric(run, metric) for metric in (GOODPUT, CPU)} for run in runs]
        blocks += [read] * all(all(run.values()) for run in read)  # nothing arrives of `null`
    monkeypatch.setattr(difference, "read_metric", lambda run, name: run[name])
    found = 0
    for _ in range(DRAWS):
        pairs = [chance.sample(block, 2) for block in chance.sample(blocks, REPEATS)]
        groups = [first for first, _ in pairs], [second for _, second in pairs]
        rows = (metric_row(*groups, name, How(paired=True)) for name in (GOODPUT, CPU))
        found += verdict_of([row for row in rows if row]) == WORSE
    assert found / DRAWS <= 2 / 40
