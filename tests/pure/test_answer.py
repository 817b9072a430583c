# SPDX-License-Identifier: GPL-2.0-only
"""A sweep answers its own question: invented costs of each way to receive must be in its first sentence."""

from typing import Any

from builders.documents import typed_runs
from builders.priced import Prices, priced
from copyscope.report.answer import answer
from copyscope.report.study_table import fill

# Each call costs 10,000 ns and sends 64 KiB: 156 ns per KiB.
FACTORS = {"receiver": ("read", "map", "poll"), "impl": ("one_copy",), "fields": (1, 2, 4)}
SIZE = 65_536


def swept(of_map: float, repeats: int = 3) -> list[Any]:
    """Return runs of three ways to receive, which cost 1 (read, poll) and `of_map` (map) in each setting."""
    records = []
    for fields in FACTORS["fields"]:
        for receiver in FACTORS["receiver"]:
            for repeat in range(repeats):
                cost = of_map if receiver == "map" else 1.0
                price: Prices = {"rest": {"call": 10_000.0 * cost}}
                factors = {
                    "impl": "one_copy",
                    "receiver": receiver,
                    "fields": fields,
                    "size": SIZE,
                    "threads": 1,
                }
                records.append(priced("one_copy", SIZE, {}, price, repeat=repeat, factors=factors))
    return typed_runs(records)


def test_the_first_sentence_has_the_cost_of_each_value() -> None:
    found = answer(fill(swept(2.0)), FACTORS)
    assert found is not None and (found.factor, found.base) == ("receiver", "read")
    assert [cost.value for cost in found.values] == ["poll", "map"]
    assert found.sentence == (
        "CPU time of all processes against receiver read "
        "(156 ns/KiB; medians of 3 settings, 95 % intervals): "
        "poll no difference found (1.00 to 1.00) and map 2.00 times (2.00 to 2.00)."
    )
    assert found.values[1].extremes.startswith("map: 2 times at 1 field")


def test_a_single_setting_with_one_repeat_has_no_interval() -> None:
    rows = [row for row in fill(swept(2.0, repeats=1)) if row.factors["fields"] == 1]
    found = answer(rows, FACTORS)
    assert found is not None and "map 2.00 times (one repeat: no interval)" in found.sentence


def test_a_sweep_of_sizes_has_no_compared_value() -> None:
    assert answer(fill(swept(2.0)), {"size": (SIZE,)}) is None
