# SPDX-License-Identifier: GPL-2.0-only
"""Answers to the six questions of the published reports, from the measured ledger. Pure functions.

Each answer has sentences and the facts behind them. A sentence claims a difference only if the interval
excludes equality. If a question cannot be answered, its answer names the missing measurement.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from copyscope.base.spelling import join_with_and
from copyscope.base.stats import SAME, Estimate, Missing
from copyscope.judge import estimates
from copyscope.judge.crossover import Crossover
from copyscope.judge.metrics import METRICS
from copyscope.report.study_table import (
    ALWAYS,
    REST,
    StudyRow,
    Waterfall,
    counterparts,
    describe,
    setting_of,
    waterfall,
)
from copyscope.report.wording import number, spell_interval, spell_ratio
from copyscope.taxonomy.accounts import TABLE

# Metrics of the comparison of two strategies -> short name of the metric.
SHORT = {"goodput_gbps": "goodput", "system_cpu_ns_per_kib": "CPU time, all processes"}
# Accounts of copies before and during the send call. Strategies differ in these copies.
COPIES_SENT = [account for account in TABLE if account.is_copy and account.leg in ("program", "send call")]
# Strategies in the expected order of their cost: by number of copies before the socket, fewest first.
FEWER_COPIES = ("zero_copy", "one_copy", "two_copy")
# Maximum number of causes in the answer about the unexpected result.
CAUSES_MAX = 3


@dataclass(frozen=True)
class Fact:
    """A measured value that an answer is based on.

    setting: strategy and settings of the measurement
    quantity: name of the value
    """

    setting: str
    quantity: str
    unit: str
    value: Estimate | Missing


@dataclass(frozen=True)
class QuestionAnswer:
    """Answer to a question.

    facts: measured values that the answer is based on
    bullets: a sentence for each strategy or setting, shown below the text
    """

    question: str
    text: str
    facts: tuple[Fact, ...] = ()
    bullets: tuple[str, ...] = ()


def answers(rows: Sequence[StudyRow], crossings: Sequence[Crossover]) -> list[QuestionAnswer]:
    """Return the answers to all six questions, in the order of the reports."""
    return [
        why_not_zero_copy(rows),
        which_cache_level(rows),
        threads_and_caches(rows),
        overtakes("one_copy", "two_copy", crossings),
        overtakes("zero_copy", "two_copy", crossings),
        unexpected_result(rows),
    ]


def why_not_zero_copy(rows: Sequence[StudyRow]) -> QuestionAnswer:
    """Explain why zero-copy does not always win: compare its savings with its costs.

    The compared points have the largest message and the fewest threads.
    """
    question = "Why does zero-copy not always win?"
    pairs = _quietest(counterparts(rows, "one_copy", "zero_copy"))
    if not pairs:
        return QuestionAnswer(question, "Not answered: one_copy and zero_copy were not both measured.")
    before, after = pairs[-1]
    saved = waterfall(before, after)
    if isinstance(saved, Missing):
        return QuestionAnswer(question, f"Not answered: {saved.reason}.")
    facts = _costs(before, after)
    facts += [Fact(_setting(after), f"{step.name}: change", "ns/KiB", step.change) for step in saved.steps]
    sentences = [_total_cost(saved), _balance(saved), _copied_share(after)]
    if len(pairs) > 1:
        one_copy, zero_copy = pairs[0]
        ratio = spell_ratio(estimates.ratio(zero_copy.point, one_copy.point, "system_cpu_ns_per_kib"))
        where = f"At {_point(zero_copy)}, where the cost of a call dominates"
        sentences.append(f"{where}, zero_copy against one_copy: {ratio}.")
        facts += _costs(*pairs[0])
    return QuestionAnswer(question, " ".join(filter(None, sentences)), tuple(facts))


def _quietest(pairs: Sequence[tuple[StudyRow, StudyRow]]) -> list[tuple[StudyRow, StudyRow]]:
    """Return the pairs with the fewest threads, sorted by size. Many threads disturb each other."""
    usable = [pair for pair in pairs if pair[0].valid and pair[1].valid]
    fewest = min((row.threads for row, _ in usable), default=0)
    return [pair for pair in usable if pair[0].threads == fewest]


def _total_cost(saved: Waterfall) -> str:
    """Return a sentence with the cost per KiB of `zero_copy` and of `one_copy`."""
    ratio = estimates.ratio(saved.after.point, saved.before.point, "system_cpu_ns_per_kib")
    return (
        f"At {_point(saved.after)} a KiB costs {number(saved.end)} ns of CPU time with zero_copy and "
        f"{number(saved.start)} ns with one_copy ({spell_ratio(ratio)})."
    )


def _balance(difference: Waterfall) -> str:
    """Return a sentence on the kinds of work that clearly save or add CPU time between two strategies."""
    steps = [step for step in difference.steps if step.name != REST and step.change.against(0.0) != SAME]
    saved = [step for step in steps if step.change.value < 0]
    added = sorted((step for step in steps if step.change.value > 0), key=lambda step: -step.change.value)
    parts = []
    if saved:
        texts = [f"{number(-step.change.value)} ns ({step.name})" for step in saved]
        parts.append(f"it saves {join_with_and(texts)}")
    if added:
        texts = [f"{number(step.change.value)} ns ({step.name})" for step in added]
        parts.append(f"it adds {join_with_and(texts)}")
    if not parts:
        return "No part of the work differs clearly between the two strategies."
    return f"Per KiB {' and '.join(parts)}."


def _copied_share(after: StudyRow) -> str:
    """Return a sentence on how much of the payload of `zero_copy` was copied, and why; "" if unknown."""
    copied = after.values["copied_share"]
    if isinstance(copied, Missing):
        return ""
    outcomes = [run.derived.zerocopy for run in after.point.runs]
    cause = next((outcome.cause.sentence for outcome in outcomes if outcome and outcome.cause), None)
    if copied.value == 0:
        return "No byte of zero_copy's payload was copied on this machine."
    why = f": {cause}" if cause else ", for an unknown reason"
    return f"{copied.value * 100:.3g} % of zero_copy's payload was copied after all{why}."


def which_cache_level(rows: Sequence[StudyRow]) -> QuestionAnswer:
    """Answer which cache level gains: compare the L1D and last-level misses of `one_copy` and `two_copy`."""
    question = "Which cache level gains most from fewer copies?"
    pairs = _quietest(counterparts(rows, "two_copy", "one_copy"))
    if not pairs:
        return QuestionAnswer(question, "Not answered: two_copy and one_copy were not both measured.")
    two_copy, one_copy = pairs[-1]
    facts: list[Fact] = []
    changes: list[tuple[str, Estimate]] = []
    reason = None
    for level, name in (("l1d", "first level (L1D)"), ("llc", "last level (LLC)")):
        for side in ("sender", "receiver"):
            metric = f"{level}_misses_per_kib_{side}"
            facts += [_fact(row, metric) for row in (two_copy, one_copy)]
            ratio = estimates.ratio(one_copy.point, two_copy.point, metric)
            if isinstance(ratio, Missing):
                reason = reason or ratio.reason
            else:
                changes.append((f"{name} of the {side}", ratio))
    if not changes:
        text = (
            f"Not answered on this machine: {reason}. Without counters, only copy times are known: "
            f"{_copy_times(two_copy, one_copy, facts)}"
        )
        return QuestionAnswer(question, text, tuple(facts))
    significant = [(name, ratio) for name, ratio in changes if ratio.against(1.0) != SAME]
    gains = sorted((item for item in significant if item[1].value < 1), key=lambda item: item[1].value)
    compared = "; ".join(f"{name}: {spell_ratio(ratio)}" for name, ratio in changes)
    point = _point(one_copy)
    opening = (
        f"The {gains[0][0]}, {(1 - gains[0][1].value) * 100:.0f} % fewer misses per KiB at {point}."
        if gains
        else f"No level has clearly fewer misses per KiB at {point}."
    )
    return QuestionAnswer(question, f"{opening} one_copy against two_copy: {compared}.", tuple(facts))


def _copy_times(two_copy: StudyRow, one_copy: StudyRow, facts: list[Fact]) -> str:
    """Return a sentence with the CPU time of each copy in two strategies, and add these times to `facts`."""
    texts = []
    for row in (two_copy, one_copy):
        for account in COPIES_SENT:
            for (category, side, context), cost in row.accounts.items():
                if category == account.name and cost.value > 0:
                    facts.append(Fact(_setting(row), f"{account.title} ({side}, {context})", "ns/KiB", cost))
                    texts.append(f"{account.title} of {row.impl} {number(cost.value)} ns")
    if not texts:
        return "no copy was sampled."
    return f"CPU time per KiB at {_point(one_copy)}: {join_with_and(texts)}."


def threads_and_caches(rows: Sequence[StudyRow]) -> QuestionAnswer:
    """Answer how threads and caches interact: compare the fewest threads with the most.

    Goodput, cost, misses and context switches are compared at the largest message size.
    """
    question = "How do threads and cache contention interact?"
    counts = sorted({row.threads for row in rows if row.valid})
    if len(counts) < 2:
        return QuestionAnswer(question, "Not answered: this experiment has only one number of threads.")
    few, many = counts[0], counts[-1]
    sentences, facts = [], []
    cpus = rows[0].point.runs[0].raw.machine.cpus_online
    misses_unknown: str | None = None
    for few_row, many_row in _thread_pairs(rows, few, many):
        texts = []
        for metric, name in (
            ("goodput_gbps", "goodput"),
            ("system_cpu_ns_per_kib", "CPU time per KiB"),
            ("llc_misses_per_kib_sender", "LLC misses per KiB of the sender"),
            ("context_switches_per_message_receiver", "context switches per message of the receiver"),
        ):
            ratio = estimates.ratio(many_row.point, few_row.point, metric)
            facts += [_fact(row, metric) for row in (few_row, many_row)]
            if isinstance(ratio, Estimate):
                texts.append(f"{name} {spell_ratio(ratio)}")
            elif metric.startswith("llc"):
                misses_unknown = ratio.reason
        if texts:
            sentences.append(f"{many_row.impl}: {'; '.join(texts)}.")
    opening = f"From {few} to {many} threads on {cpus} CPUs, at the largest message."
    closing = f" Cache misses: n/a: {misses_unknown}." if misses_unknown else ""
    return QuestionAnswer(question, f"{opening}{closing}", tuple(facts), tuple(sentences))


def _thread_pairs(rows: Sequence[StudyRow], few: int, many: int) -> list[tuple[StudyRow, StudyRow]]:
    """Return a pair of points for each strategy: the largest message with few and with many threads."""
    pairs: dict[str, tuple[StudyRow, StudyRow]] = {}
    valid = [row for row in rows if row.valid]
    with_few = {setting_of(row.factors, "threads"): row for row in valid if row.threads == few}
    for row in valid:  # sorted by size: the last row that is stored has the largest message
        counterpart = with_few.get(setting_of(row.factors, "threads"))
        if row.threads == many and counterpart is not None:
            pairs[row.impl] = (counterpart, row)
    return list(pairs.values())


def overtakes(second: str, first: str, crossings: Sequence[Crossover]) -> QuestionAnswer:
    """Answer above which size `second` beats `first` in goodput and in CPU time, by number of threads."""
    question = f"At which size does {second} overtake {first}?"
    matching = [crossing for crossing in crossings if crossing.pair == (first, second)]
    if not matching:
        return QuestionAnswer(
            question, f"Not answered: {first} and {second} were not measured at the same settings."
        )
    sentences, facts = [], []
    for crossing in matching:
        if crossing.quantity not in SHORT:
            continue
        setting = describe({"threads": crossing.threads, **crossing.where})
        sentences.append(f"{SHORT[crossing.quantity]}, {setting}: {crossing.evidence}.")
        for at in crossing.measured:
            setting_and_size = f"{second} / {first}, {describe({'size': at.size_bytes})}, {setting}"
            facts.append(Fact(setting_and_size, SHORT[crossing.quantity], "ratio", at.ratio))
    text = "Goodput and CPU time may disagree; the table has the ratio at every size."
    return QuestionAnswer(question, text, tuple(facts), tuple(sentences))


def unexpected_result(rows: Sequence[StudyRow]) -> QuestionAnswer:
    """Explain the largest exception to "fewer copies cost less" by the work that causes it."""
    question = "One unexpected result, explained"
    worst: tuple[Estimate, StudyRow, StudyRow] | None = None
    for fewer_impl, more_impl in combinations(FEWER_COPIES, 2):
        for fewer, more in counterparts(rows, fewer_impl, more_impl):
            if not fewer.valid or not more.valid:
                continue
            ratio = estimates.ratio(fewer.point, more.point, "system_cpu_ns_per_kib")
            if isinstance(ratio, Missing) or ratio.value <= 1 or ratio.against(1.0) == SAME:
                continue
            if worst is None or ratio.value > worst[0].value:
                worst = (ratio, fewer, more)
    if worst is None:
        text = "No strategy with fewer copies costs clearly more CPU time."
        return QuestionAnswer(question, text)
    ratio, fewer, more = worst
    difference = waterfall(more, fewer)
    facts = _costs(more, fewer)
    opening = (
        f"{fewer.impl} makes fewer copies into the socket than {more.impl}, yet at {_point(fewer)} it costs "
        f"{number(ratio.value)} times as much CPU time per KiB ({spell_interval(ratio)})."
    )
    if isinstance(difference, Missing):
        text = f"{opening} The ledger does not show why: {difference.reason}."
        return QuestionAnswer(question, text, tuple(facts))
    changed = [step for step in difference.steps if step.change.against(0.0) != SAME]
    added = sorted((step for step in changed if step.change.value > 0), key=lambda step: -step.change.value)
    transition = f"{more.impl} to {fewer.impl}"
    facts += [Fact(transition, f"{step.name}: change", "ns/KiB", step.change) for step in difference.steps]
    causes = [f"{step.name} (+{number(step.change.value)} ns/KiB)" for step in added[:CAUSES_MAX]]
    cause = (
        f"Most of this difference is {join_with_and(causes)}."
        if added
        else "No single part of the ledger explains this difference."
    )
    copied = f" {_copied_share(fewer)}" if fewer.impl == "zero_copy" else ""
    return QuestionAnswer(question, f"{opening} {cause}{copied}", tuple(facts))


def _fact(row: StudyRow, metric: str) -> Fact:
    """Return a metric's value at a point of the sweep, with its label and unit."""
    return Fact(_setting(row), METRICS[metric].label, METRICS[metric].unit, row.values[metric])


def _costs(*rows: StudyRow) -> list[Fact]:
    """Return each row's CPU time per KiB, summed over all processes, as a fact."""
    quantity, unit = SHORT["system_cpu_ns_per_kib"], "ns/KiB"
    return [Fact(_setting(row), quantity, unit, row.values["system_cpu_ns_per_kib"]) for row in rows]


def _setting(row: StudyRow) -> str:
    return f"{row.impl}, {_point(row)}"


def _point(row: StudyRow) -> str:
    """Format a row's settings, such as `64 KiB, 1 thread`. Other factors follow if they are few."""
    shown = {"size": row.size, "threads": row.threads}
    shown |= {
        name: value for name, value in row.factors.items() if name not in ALWAYS and len(row.factors) < 8
    }
    return describe(shown)
