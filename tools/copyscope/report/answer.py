# SPDX-License-Identifier: GPL-2.0-only
"""A sweep's answer to its own question: the cost of each value of the factor that the sweep compares."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from copyscope.base.spelling import join_with_and, three_digits
from copyscope.base.stats import SAME, Estimate, median_of
from copyscope.judge.crossover import AXES
from copyscope.judge.crossover_sentences import CPU
from copyscope.report.study_table import BASES, StudyRow, counterparts, ratio_to, spell_factor, varied
from copyscope.report.wording import number, spell_estimate


@dataclass(frozen=True)
class ValueCost:
    """CPU time at one value of the compared factor, relative to the base value.

    ratio: median over all settings that both values share; for a single setting, the ratio there
    ratios: setting in words -> ratio
    """

    value: str
    ratio: Estimate
    ratios: Mapping[str, Estimate]

    @property
    def text(self) -> str:
        """The ratio in words: `0.81 times (0.74 to 0.88)`, or `no difference found (0.97 to 1.04)`."""
        ratio = self.ratio
        if ratio.ends is None:
            return f"{self.value} {three_digits(ratio.value)} times (one repeat: no interval)"
        ends = f"({' to '.join(map(three_digits, ratio.ends))})"
        if ratio.against(1.0) == SAME:
            return f"{self.value} no difference found {ends}"
        return f"{self.value} {three_digits(ratio.value)} times {ends}"

    @property
    def extremes(self) -> str:
        """The settings with the lowest and the highest ratio."""
        lowest, highest = (
            choose(self.ratios, key=lambda setting: self.ratios[setting].value) for choose in (min, max)
        )
        texts = [
            f"{spell_estimate(self.ratios[setting])} times at {setting}" for setting in (lowest, highest)
        ]
        return f"{self.value}: {texts[0]}; {texts[1]}."


@dataclass(frozen=True)
class Answer:
    """Costs of the compared factor's values, the cheapest first, relative to the value `base`."""

    factor: str
    base: str
    base_costs: Sequence[float]
    values: Sequence[ValueCost]

    @property
    def settings(self) -> int:
        """Number of settings of the value that has the most."""
        return max(len(value.ratios) for value in self.values)

    @property
    def sentence(self) -> str:
        """The answer in a sentence, with the ratio of each value and its interval."""
        costs = dict.fromkeys(number(cost) for cost in (min(self.base_costs), max(self.base_costs)))
        medians = f"medians of {self.settings} settings, " if self.settings > 1 else ""
        values = join_with_and([value.text for value in self.values])
        return (
            f"CPU time of all processes against {self.factor} {self.base} "
            f"({' to '.join(costs)} ns/KiB; {medians}95 % intervals): {values}."
        )


def answer(rows: Sequence[StudyRow], factors: Mapping[str, Sequence[object]]) -> Answer | None:
    """Return the cost of each value of the first factor that is not an axis of a crossover.

    factors: the experiment's factors with their values, in the experiment's order
    Returns None if no such factor was varied, or if no two of its values have a known CPU time.
    """
    factor = next((name for name in factors if name not in AXES and name in varied(rows)), None)
    if factor is None:
        return None
    values = list(factors[factor])
    base = next((name for name in BASES if factor == "impl" and name in values), values[0])
    costs = [
        cost
        for value in values
        if value != base and (cost := _value_cost(rows, factor, base, value)) is not None
    ]
    base_costs = [row.values[CPU] for row in rows if row.factors.get(factor) == base]
    known = [cost.value for cost in base_costs if isinstance(cost, Estimate)]
    if not costs or not known:
        return None
    return Answer(factor, str(base), known, sorted(costs, key=lambda cost: cost.ratio.value))


def _value_cost(rows: Sequence[StudyRow], factor: str, base: object, value: object) -> ValueCost | None:
    """Return the cost of a value relative to the base value in all settings that both share, or None."""
    swept = varied(rows, without=(factor,))
    ratios: dict[str, Estimate] = {}
    for before, after in counterparts(rows, base, value, factor):
        if (ratio := ratio_to(before, after, CPU)) is not None:
            setting = ", ".join(spell_factor(name, after.factors.get(name)) for name in swept)
            ratios[setting] = ratio
    if not ratios:
        return None
    several = [ratio.value for ratio in ratios.values()]
    return ValueCost(
        str(value), median_of(several) if len(several) > 1 else next(iter(ratios.values())), ratios
    )
