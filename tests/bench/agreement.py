"""Do two runs of a benchmark come to the same conclusions? Pure.

Two rows agree when their intervals overlap, or when both say the same sign and neither meets surely a goal
that the other surely misses. Where the truth is the same, two intervals of 95 % miss each other in 0.6 % of
cases (the difference of two normal values is beyond 1.96 + 1.96 of their standard deviations); those of ten
pairs are a bootstrap's and cover a little less: at most 1 % in simulation (tests/pure/test_agreement.py).
Rows of one size share their samples, so what disagrees by chance comes in groups.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import comb
from typing import Any

from conclusions import Conclusion, conclusions

# The most of the rows whose truth is the same that disagree nevertheless.
BY_CHANCE = 0.01
SURE = 0.95


@dataclass(frozen=True)
class Pair:
    """One row in both runs."""

    now: Conclusion
    earlier: Conclusion

    @property
    def overlap(self) -> bool:
        return self.now.low <= self.earlier.high and self.earlier.low <= self.now.high

    @property
    def agrees(self) -> bool:
        if self.overlap:
            return True
        opposed = {self.now.reached, self.earlier.reached} == {"met", "missed"}
        return self.now.sign == self.earlier.sign and not opposed


@dataclass(frozen=True)
class Agreement:
    """The rows that both runs have, and those that only one has."""

    name: str
    pairs: Sequence[Pair]
    lonely: Sequence[str]

    @property
    def disagreeing(self) -> list[Pair]:
        return [pair for pair in self.pairs if not pair.agrees]


def agreement(name: str, now: dict[str, Any], earlier: dict[str, Any]) -> Agreement | None:
    """Both runs of one benchmark, row by row; None for runs of two machines, which are not to agree."""
    if now["machine"] != earlier["machine"]:
        return None
    new, old = ({one.row: one for one in conclusions(name, result)} for result in (now, earlier))
    both = [Pair(new[row], old[row]) for row in new if row in old]
    return Agreement(name, both, sorted(new.keys() ^ old.keys()))


def at_most(rows: int, chance: float = BY_CHANCE, sure: float = SURE) -> int:
    """The least number of disagreeing rows that chance alone exceeds with less than 1 - `sure` (binomial)."""
    reached, count = 0.0, -1
    while reached < sure:
        count += 1
        reached += comb(rows, count) * chance**count * (1 - chance) ** (rows - count)
    return count


def verdict(found: Sequence[Agreement]) -> str:
    """All benchmarks in one sentence."""
    rows = sum(len(one.pairs) for one in found)
    wrong = sum(len(one.disagreeing) for one in found)
    limit = at_most(rows)
    chance = f"by chance alone about {BY_CHANCE * rows:.1f} are expected, and hardly more than {limit}"
    said = "the conclusions agree" if wrong <= limit else "MORE THAN CHANCE: the two runs do not agree"
    return f"{wrong} of {rows} rows disagree; {chance}: {said}."


def lines(found: Sequence[Agreement], when: dict[str, tuple[str, str]]) -> list[str]:
    """The section of results/bench/README.md; `when`: benchmark -> what is said of both runs."""
    columns = (
        "benchmark",
        "this run",
        "earlier run",
        "rows",
        "intervals overlap",
        "only the sign",
        "disagree",
    )
    text = [
        "Two rows agree when their intervals overlap, or when both are on the same side of 1 and do not say "
        "the opposite of a goal. Intervals are of 95 %; those of `own` and `precision` are the range of a "
        "few runs, which is less.",
        "",
        verdict(found),
        "",
        f"| {' | '.join(columns)} |",
        "|---" * len(columns) + "|",
    ]
    for one in found:
        overlap, agree = (sum(getattr(p, key) for p in one.pairs) for key in ("overlap", "agrees"))
        cells = [one.name, *when[one.name], len(one.pairs), overlap, agree - overlap, len(one.pairs) - agree]
        text.append(f"| {' | '.join(map(str, cells))} |")
    goals = [pair for one in found for pair in one.pairs if pair.now.goal is not None]
    if goals:
        same = sum(pair.now.reached == pair.earlier.reached for pair in goals)
        text += ["", f"Goals: {len(goals)} rows have one; {same} are {_states(goals)} in both runs."]
    wrong = [f"- {one.name}: {_both(pair)}" for one in found for pair in one.disagreeing]
    lonely = [f"- {one.name}: {row}: in one of the runs only" for one in found for row in one.lonely]
    return [*text, *([""] if wrong or lonely else []), *wrong, *lonely]


def _states(goals: Sequence[Pair]) -> str:
    counts = {
        state: sum(pair.now.reached == pair.earlier.reached == state for pair in goals)
        for state in ("met", "missed", "open")
    }
    return "the same (" + ", ".join(f"{count} {state}" for state, count in counts.items()) + ")"


def _both(pair: Pair) -> str:
    return f"{pair.now.row}: {pair.now}; earlier {pair.earlier}"
