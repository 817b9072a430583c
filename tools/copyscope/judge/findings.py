# SPDX-License-Identifier: GPL-2.0-only
"""Rules for findings about a watched program, and how a rule is applied to a run. Pure.

problems.py has the rules of `why`. remedies.py and obstacles.py have the rules of `advise`.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from copyscope.judge.crossover_file import Strategy
from copyscope.judge.evidence import WORTH_TRYING, Evidence, Facts
from copyscope.judge.servers import Setting
from copyscope.ledger.share import Share

# problem: a reason why zero-copy does not make the program faster.
# remedy: a change that may make the program copy less.
# path, pages, program: obstacles to zero-copy. Obstacles of kind `pages` prevent sendfile, too.
# fallback, guess: a certain, or only likely, reason why a program that sends files does not use sendfile.
Kind = Literal["problem", "remedy", "path", "pages", "program", "fallback", "guess"]
Answer = Literal["yes", "maybe", "no", "n/a"]
# Answers in the order in which remedies are reported: helpful answers first.
ANSWERS: tuple[Answer, ...] = ("yes", "maybe", "n/a", "no")


@dataclass(frozen=True)
class Decision:
    """The answer to the question whether a remedy helps.

    text: one line with the reason for the answer
    is_priced: False if the report leaves the saving out, because it is unknown or the remedy does not apply
    how: the program's own setting or call for the remedy, if the remedy may help
    """

    answer: Answer
    text: str
    is_priced: bool = True
    how: str | None = None


@dataclass(frozen=True)
class RemedyTerms:
    """Rules that decide if a remedy helps, and texts for each answer.

    setting: key of the program's own setting or call for the remedy ({how} in texts)
    saving: returns the bounds of the saving ({saving} in texts): `12 to 74 %` or `at most 9 %`
    unknown: answer and text if the saving is unknown
    meaning: effect of the remedy, and the observations that the answer depends on; at most 78 columns
    decisions: functions called in turn: the first result that is not None is the answer
    stopped_by: rules of obstacles and fallbacks; the first rule that applies makes the answer `no`
    strategy: the remedy as a strategy in a crossover; None: crossovers do not measure it
    needs_crossover: True if only a crossover can show whether the remedy pays off
    is_certain: returns False if the answer is at best `maybe`, even if a crossover shows that the remedy pays
        off
    provided: condition after the saving in the one-sentence answer
    headline: the one-sentence answer without the name of the program, for a remedy that comes first because
        it saves time rather than CPU time; {how} and facts are placeholders
    """

    setting: Setting
    saving: Callable[[Evidence], Share | None]
    unknown: tuple[Answer, str]
    meaning: str
    decisions: Sequence[Callable[[Evidence], Decision | None]] = ()
    stopped_by: Sequence["FindingRule"] = ()
    strategy: Strategy | None = None
    needs_crossover: bool = False
    is_certain: Callable[[Evidence], bool] = lambda _: True
    provided: str = ""
    headline: str = ""


@dataclass(frozen=True)
class FindingRule:
    """A rule that finds a single kind of problem, remedy or obstacle.

    code: name of the rule in records
    condition: yields the facts for the texts, once for each case in which the rule applies
    summary: text of one line; {name} stands for a fact
    evidence: one sentence with the numbers
    change: advice about a problem
    cost: accounts whose share of the CPU time is the cost of a problem
    cost_least: a cost is left out if the lower end of its interval is smaller than this share
    cost_note: words for further work that the cost includes
    wall: returns the part of the elapsed time that a problem takes
    """

    kind: Kind
    code: str
    condition: Callable[[Evidence], Iterator[Facts]]
    summary: str = ""
    evidence: str = ""
    change: str = ""
    cost: Sequence[str] = ()
    cost_least: float = 0.0
    cost_note: str = ""
    wall: Callable[[Evidence], float | None] | None = None
    remedy: RemedyTerms | None = None


@dataclass(frozen=True)
class Finding:
    """Result of a rule that applies to a run.

    change: what to do, with the program's own setting or call
    cost: share of the CPU time that a problem takes
    wall_share: part of the elapsed time that a problem takes
    saving: least and most that a remedy saves, as shares of the CPU time
    headline: the one-sentence answer, for a remedy that comes first
    is_open: True if only a measured crossover can answer
    """

    rule: FindingRule
    summary: str
    evidence: str = ""
    change: str | None = None
    cost: Share | None = None
    wall_share: float | None = None
    saving: Share | None = None
    answer: Answer = "no"
    is_open: bool = False
    headline: str = ""

    @property
    def largest_cost(self) -> float:
        """Return the larger share, of the elapsed time or of the CPU time, or 0 if both are unknown."""
        return max(self.wall_share or 0.0, self.cost.share or 0.0 if self.cost else 0.0)


def find(rules: Sequence[FindingRule], evidence: Evidence, *kinds: Kind) -> list[Finding]:
    """Return the findings of some kinds for a run: helpful answers first, then by decreasing cost.

    Findings with equal answer and cost stay in the order of the rules.
    """
    findings = [finding for rule in rules if rule.kind in kinds for finding in _apply(rule, evidence)]
    return sorted(findings, key=lambda finding: (ANSWERS.index(finding.answer), -finding.largest_cost))


def _apply(rule: FindingRule, evidence: Evidence) -> Iterator[Finding]:
    """Yield a finding for each case in which a rule applies."""
    for facts in rule.condition(evidence):
        if rule.remedy is not None:
            yield _judge(rule, rule.remedy, evidence, facts)
            continue
        cost = evidence.share(rule.cost) if rule.cost else None
        if cost is not None and (cost.share is None or cost.low < rule.cost_least):
            cost = None
        yield Finding(
            rule,
            rule.summary.format_map(facts),
            rule.evidence.format_map(facts),
            rule.change.format_map(facts),
            cost,
            rule.wall(evidence) if rule.wall else None,
        )


def _judge(rule: FindingRule, terms: RemedyTerms, evidence: Evidence, facts: Facts) -> Finding:
    """Return the finding for a remedy: an answer whether the remedy helps, with the saving.

    terms: the rules for the answer
    facts: placeholder -> text, for the texts of the rule
    """
    saving = terms.saving(evidence)
    decision = _decide(terms, evidence) or _weigh(rule, terms, evidence, saving, facts)
    is_open = terms.needs_crossover and evidence.lacks_crossover(terms.strategy)
    return Finding(
        rule,
        decision.text,
        change=decision.how,
        saving=saving if decision.is_priced else None,
        answer=decision.answer,
        is_open=is_open and decision.answer == "maybe",
        headline=terms.headline.format_map({**facts, "how": decision.how}) if decision.how else "",
    )


def _decide(terms: RemedyTerms, evidence: Evidence) -> Decision | None:
    """Return the first decision of a remedy, or `no` because of the first obstacle, or None."""
    decisions = (decide(evidence) for decide in terms.decisions)
    obstacles = (
        Decision("no", obstacle.summary.format_map(facts))
        for obstacle in terms.stopped_by
        for facts in obstacle.condition(evidence)
    )
    return next((decision for decision in (*decisions, *obstacles) if decision is not None), None)


def _weigh(
    rule: FindingRule, terms: RemedyTerms, evidence: Evidence, saving: Share | None, facts: Facts
) -> Decision:
    """Decide about a remedy from its saving and the crossover.

    saving: bounds of the saving; None if unknown
    facts: placeholder -> text
    """
    how, pays = evidence.setting(terms.setting), evidence.pays_off(terms.strategy)
    few = evidence.undecided(saving)
    if pays is None and few is not None and not terms.headline:
        bounds = f"{saving.spoken()}: " if saving else ""
        return Decision("n/a", f"{bounds}{few.briefly()}", is_priced=False)
    if saving is not None and saving.high < WORTH_TRYING:
        return Decision("no", f"saves at most {saving.at_most()}")
    if how is None:
        # The developers of the program may still want to know the bound.
        note = f" (in its code: at most {saving.at_most()})" if saving is not None else ""
        return Decision("no", f"{evidence.server.name} has no such setting{note}")
    words = {**facts, "how": how}
    answer, text = terms.unknown
    if saving is not None:
        words["saving"] = saving.spoken()
        answer, text = "maybe", rule.summary
    if pays is False:
        return Decision("no", "costs more than it saves, by a crossover on this host")
    if pays and terms.is_certain(evidence):
        answer = "yes"
    elif terms.needs_crossover and terms.strategy:
        text += f"; {evidence.crossover_note(terms.strategy)}"
    # The report prints the code of the remedy before the text, so do not repeat the code.
    return Decision(answer, text.format_map(words).removeprefix(f"`{rule.code}` "), how=how)
