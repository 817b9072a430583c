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

from conclusions import VERDICT_ROW, Conclusion, conclusions

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
    # row -> which run has it
    lonely: dict[str, str]
    runs: tuple[str, str]
    # Why a difference need not be the machine's or chance; None where both are of one clean commit.
    unlike: str | None

    @property
    def disagreeing(self) -> list[Pair]:
        return [pair for pair in self.pairs if not pair.agrees]


def agreement(name: str, now: dict[str, Any], earlier: dict[str, Any]) -> Agreement | None:
    """Both runs of one benchmark, row by row; None for runs of two machines, which are not to agree."""
    if now["machine"] != earlier["machine"]:
        return None
    new, old = ({one.row: one for one in conclusions(name, result)} for result in (now, earlier))
    both = [Pair(new[row], old[row]) for row in new if row in old]
    alone = {row: "this run" if row in new else "the earlier run" for row in sorted(new.keys() ^ old.keys())}
    return Agreement(name, both, alone, (run_name(now), run_name(earlier)), unlike(now, earlier))


def run_name(result: dict[str, Any]) -> str:
    """When and of which commit; results that are older than these keys do not say."""
    return f"{result.get('started', 'time not kept')[:16]}, {result.get('git') or 'commit not known'}"


def unlike(now: dict[str, Any], earlier: dict[str, Any]) -> str | None:
    """Why the two need not have measured the same code."""
    commits = now.get("git"), earlier.get("git")
    if not all(commits):
        return "the commit of a run is not known"
    if any(" and changes" in str(commit) for commit in commits):
        return "a run is of a tree with changes that no commit has"
    return "the two runs are of unlike commits" if commits[0] != commits[1] else None


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
    names = [one.name for one in found if one.unlike]
    but = f" NOT TWO RUNS OF ONE CODE: {', '.join(names)}." if names else ""
    return f"{wrong} of {rows} rows disagree; {chance}: {said}.{but}"


def lines(found: Sequence[Agreement]) -> list[str]:
    """The section of results/bench/README.md."""
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
        "few runs, which is less, and those of ratios of two ratios are made of the ends of both, which is "
        "more.",
        "",
        verdict(found),
        "",
        f"| {' | '.join(columns)} |",
        "|---" * len(columns) + "|",
    ]
    for one in found:
        overlap, agree = (sum(getattr(p, key) for p in one.pairs) for key in ("overlap", "agrees"))
        cells = [one.name, *one.runs, len(one.pairs), overlap, agree - overlap, len(one.pairs) - agree]
        text.append(f"| {' | '.join(map(str, cells))} |")
    text += goals([(one.name, pair) for one in found for pair in one.pairs if pair.now.goal is not None])
    different = [f"- {one.name}: {one.unlike}" for one in found if one.unlike]
    different += [
        f"- {one.name}: THE VERDICTS DIFFER: {_both(pair)}"
        for one in found
        for pair in one.pairs
        if pair.now.row == VERDICT_ROW and pair.now.sign != pair.earlier.sign
    ]
    wrong = [f"- {one.name}: {_both(pair)}" for one in found for pair in one.disagreeing]
    lonely = [f"- {one.name}: {row}: in {run} only" for one in found for row, run in one.lonely.items()]
    return [*text, *([""] if different or wrong or lonely else []), *different, *wrong, *lonely]


def goals(named: Sequence[tuple[str, Pair]]) -> list[str]:
    """How many are reached, and by name those that one of the runs surely misses."""
    if not named:
        return []
    pairs = [pair for _, pair in named]
    same = sum(pair.now.reached == pair.earlier.reached for pair in pairs)
    said = f"Goals: {len(pairs)} rows have one; {same} are {_states(pairs)} in both runs."
    missed = [
        f"- {name}: {_both(pair)}"
        for name, pair in named
        if "missed" in (pair.now.reached, pair.earlier.reached)
    ]
    if not missed:
        return ["", said, "No run misses one for sure."]
    return ["", f"{said} Missed for sure in one run or both:", "", *missed]


def _states(goals: Sequence[Pair]) -> str:
    counts = {
        state: sum(pair.now.reached == pair.earlier.reached == state for pair in goals)
        for state in ("met", "missed", "open")
    }
    return "the same (" + ", ".join(f"{count} {state}" for state, count in counts.items()) + ")"


def _both(pair: Pair) -> str:
    return f"{pair.now.row}: {pair.now}; earlier {pair.earlier}"
