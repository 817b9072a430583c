"""The six questions that the published reports had to answer, answered from the measured ledger.

Pure: the rows of the table and the crossovers in, sentences and the facts that they rest on out. A sentence
claims a difference only where the interval of the facts excludes none; a question that this machine or this
experiment cannot answer says what is missing.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from copyscope.judge import estimates
from copyscope.judge.crossover import Crossover
from copyscope.judge.metrics import METRICS
from copyscope.stats import SAME, Estimate, Missing
from copyscope.study.cost_waterfall import REST, Waterfall, counterparts, waterfall
from copyscope.study.facets import describe
from copyscope.study.table import ALWAYS, Row, setting_of
from copyscope.study.wording import interval, listed, number, say_ratio

# in which two strategies are compared
SHORT = {"goodput_gbps": "goodput", "system_cpu_ns_per_kib": "CPU time, all sides"}
COPY_WORDS = {"gather": "program's own memcpy", "copy_in": "copy into the kernel"}
# what each strategy copies on its way into the socket, from few to many: the order that one would expect
FEWER_COPIES = ("zero_copy", "one_copy", "two_copy")


@dataclass(frozen=True)
class Fact:
    """One row that an answer rests on."""

    setting: str
    quantity: str
    unit: str
    value: Estimate | Missing


@dataclass(frozen=True)
class Answer:
    """`bullets`: what is said of each strategy or setting, below the text."""

    question: str
    text: str
    facts: tuple[Fact, ...] = ()
    bullets: tuple[str, ...] = ()


def answers(rows: Sequence[Row], crossings: Sequence[Crossover]) -> list[Answer]:
    """All six, in the order of the reports."""
    return [
        why_not_zero_copy(rows),
        which_cache_level(rows),
        threads_and_caches(rows),
        overtakes("one_copy", "two_copy", crossings),
        overtakes("zero_copy", "two_copy", crossings),
        unexpected(rows),
    ]


def why_not_zero_copy(rows: Sequence[Row]) -> Answer:
    """What zero-copy saves and what it pays instead, at the largest message and the fewest threads."""
    question = "Why does zero-copy not always win?"
    pairs = _quietest(counterparts(rows, "one_copy", "zero_copy"))
    if not pairs:
        return Answer(question, "Not answered: one_copy and zero_copy were not both measured.")
    before, after = pairs[-1]
    found = waterfall(before, after)
    if isinstance(found, Missing):
        return Answer(question, f"Not answered: {found.reason}.")
    facts = _costs(before, after)
    facts += [Fact(_setting(after), f"{s.name}: change", "ns/KiB", s.change) for s in found.steps]
    sentences = [_whole(found), _balance(found), _fate(after)]
    if len(pairs) > 1:
        small, other = pairs[0]
        ratio = say_ratio(estimates.ratio(other.point, small.point, "system_cpu_ns_per_kib"))
        place = f"At {_place(other)}, where the cost of a call dominates"
        sentences.append(f"{place}, zero_copy against one_copy: {ratio}.")
        facts += _costs(*pairs[0])
    return Answer(question, " ".join(s for s in sentences if s), tuple(facts))


def _quietest(pairs: Sequence[tuple[Row, Row]]) -> list[tuple[Row, Row]]:
    """The pairs of the fewest threads, by size: there threads do not disturb each other."""
    usable = [pair for pair in pairs if pair[0].valid and pair[1].valid]
    fewest = min((a.threads for a, _ in usable), default=0)
    return [pair for pair in usable if pair[0].threads == fewest]


def _whole(found: Waterfall) -> str:
    ratio = estimates.ratio(found.after.point, found.before.point, "system_cpu_ns_per_kib")
    return (
        f"At {_place(found.after)} a KiB costs {number(found.end)} ns of CPU time with zero_copy and "
        f"{number(found.start)} ns with one_copy ({say_ratio(ratio)})."
    )


def _balance(found: Waterfall) -> str:
    clear = [s for s in found.steps if s.name != REST and s.change.against(0.0) != SAME]
    saved = [s for s in clear if s.change.value < 0]
    paid = sorted((s for s in clear if s.change.value > 0), key=lambda s: -s.change.value)
    parts = []
    if saved:
        parts.append("it saves " + listed([f"{number(-s.change.value)} ns ({s.name})" for s in saved]))
    if paid:
        parts.append("it pays " + listed([f"{number(s.change.value)} ns ({s.name})" for s in paid]))
    if not parts:
        return "No part of the work differs by more than its interval."
    return f"Per KiB {' and '.join(parts)}."


def _fate(after: Row) -> str:
    copied = after.values["copied_share"]
    if isinstance(copied, Missing):
        return ""
    fates = [run.derived.zerocopy for run in after.point.runs]
    cause = next((one.cause.sentence for one in fates if one and one.cause), None)
    if copied.value == 0:
        return "No byte of its payload was copied on this machine."
    why = f": {cause}" if cause else ", the cause is not known"
    return f"{copied.value * 100:.3g} % of its payload was copied after all{why}."


def which_cache_level(rows: Sequence[Row]) -> Answer:
    """L1 and last level: the misses that one_copy has less than two_copy, on both sides."""
    question = "Which cache level gains most from fewer copies?"
    pairs = _quietest(counterparts(rows, "two_copy", "one_copy"))
    if not pairs:
        return Answer(question, "Not answered: two_copy and one_copy were not both measured.")
    two, one = pairs[-1]
    facts: list[Fact] = []
    changes: list[tuple[str, Estimate]] = []
    reason = None
    for level, name in (("l1d", "first level (L1D)"), ("llc", "last level (LLC)")):
        for side in ("sender", "receiver"):
            metric = f"{level}_misses_per_kib_{side}"
            facts += [_fact(row, metric) for row in (two, one)]
            ratio = estimates.ratio(one.point, two.point, metric)
            if isinstance(ratio, Missing):
                reason = reason or ratio.reason
            else:
                changes.append((f"{name} of the {side}", ratio))
    if not changes:
        text = (
            f"Not answered on this machine: {reason}. What is known without counters: "
            f"{_copy_times(two, one, facts)}"
        )
        return Answer(question, text, tuple(facts))
    clear = [(name, ratio) for name, ratio in changes if ratio.against(1.0) != SAME]
    gains = sorted((item for item in clear if item[1].value < 1), key=lambda item: item[1].value)
    compared = "; ".join(f"{name}: {say_ratio(ratio)}" for name, ratio in changes)
    opening = (
        f"The {gains[0][0]}, {(1 - gains[0][1].value) * 100:.0f} % fewer misses per KiB at {_place(one)}."
        if gains
        else f"No level has clearly fewer misses per KiB at {_place(one)}."
    )
    return Answer(question, f"{opening} one_copy against two_copy: {compared}.", tuple(facts))


def _copy_times(two: Row, one: Row, facts: list[Fact]) -> str:
    texts = []
    for row in (two, one):
        for account, words in COPY_WORDS.items():
            for (category, side, context), cost in row.accounts.items():
                if category == account and cost.value > 0:
                    facts.append(Fact(_setting(row), f"{words} ({side}, {context})", "ns/KiB", cost))
                    texts.append(f"{words} of {row.impl} {number(cost.value)} ns")
    return f"CPU time per KiB at {_place(one)}: {listed(texts)}." if texts else "no copy was sampled."


def threads_and_caches(rows: Sequence[Row]) -> Answer:
    """From the fewest threads to the most, at the largest message: rate, cost, misses, switches."""
    question = "How do threads and cache contention interact?"
    counts = sorted({row.threads for row in rows if row.valid})
    if len(counts) < 2:
        return Answer(question, "Not answered: this experiment has one thread count only.")
    few, many = counts[0], counts[-1]
    sentences, facts = [], []
    cpus = rows[0].point.runs[0].raw.machine.cpus_online
    misses_unknown: str | None = None
    for low, high in _thread_pairs(rows, few, many):
        said = []
        for metric, name in (
            ("goodput_gbps", "goodput"),
            ("system_cpu_ns_per_kib", "CPU time per KiB"),
            ("llc_misses_per_kib_sender", "LLC misses per KiB of the sender"),
            ("context_switches_per_message_receiver", "context switches per message of the receiver"),
        ):
            ratio = estimates.ratio(high.point, low.point, metric)
            facts += [_fact(row, metric) for row in (low, high)]
            if isinstance(ratio, Estimate):
                said.append(f"{name} {say_ratio(ratio)}")
            elif metric.startswith("llc"):
                misses_unknown = ratio.reason
        if said:
            sentences.append(f"{high.impl}: {'; '.join(said)}.")
    opening = f"From {few} to {many} threads on {cpus} CPUs, at the largest message."
    closing = f" Cache misses: n/a: {misses_unknown}." if misses_unknown else ""
    return Answer(question, f"{opening}{closing}", tuple(facts), tuple(sentences))


def _thread_pairs(rows: Sequence[Row], few: int, many: int) -> list[tuple[Row, Row]]:
    """For each strategy the two points of its largest message that differ in the threads only."""
    found: dict[str, tuple[Row, Row]] = {}
    ours = [row for row in rows if row.valid]
    by_rest = {setting_of(row.factors, "threads"): row for row in ours if row.threads == few}
    for row in ours:  # by size: the last one stands
        other = by_rest.get(setting_of(row.factors, "threads"))
        if row.threads == many and other is not None:
            found[row.impl] = (other, row)
    return list(found.values())


def overtakes(second: str, first: str, crossings: Sequence[Crossover]) -> Answer:
    """The sizes at which one strategy overtakes another: in goodput and in CPU time, per thread count."""
    question = f"At which size does {second} overtake {first}?"
    found = [c for c in crossings if c.pair == (first, second)]
    if not found:
        return Answer(question, f"Not answered: {first} and {second} were not measured at the same settings.")
    sentences, facts = [], []
    for c in found:
        if c.quantity not in SHORT:
            continue
        setting = describe({"threads": c.threads, **c.where})
        sentences.append(f"{SHORT[c.quantity]}, {setting}: {c.evidence}.")
        for at in c.measured:
            place = f"{second} / {first}, {describe({'size': at.size_bytes})}, {setting}"
            facts.append(Fact(place, SHORT[c.quantity], "ratio", at.ratio))
    text = "Goodput and CPU time may disagree; the table has the ratio at every size."
    return Answer(question, text, tuple(facts), tuple(sentences))


def unexpected(rows: Sequence[Row]) -> Answer:
    """The greatest contradiction to `fewer copies cost less`, and the ledger rows that make it."""
    question = "One unexpected result, explained"
    worst: tuple[Estimate, Row, Row] | None = None
    for index, fewer in enumerate(FEWER_COPIES):
        for more in FEWER_COPIES[index + 1 :]:
            for a, b in counterparts(rows, fewer, more):
                if not a.valid or not b.valid:
                    continue
                ratio = estimates.ratio(a.point, b.point, "system_cpu_ns_per_kib")
                if isinstance(ratio, Missing) or ratio.value <= 1 or ratio.against(1.0) == SAME:
                    continue
                if worst is None or ratio.value > worst[0].value:
                    worst = (ratio, a, b)
    if worst is None:
        text = "No strategy with fewer copies costs clearly more CPU time."
        return Answer(question, text)
    ratio, a, b = worst
    found = waterfall(b, a)
    facts = _costs(b, a)
    opening = (
        f"{a.impl} makes fewer copies into the socket than {b.impl}, yet at {_place(a)} it costs "
        f"{number(ratio.value)} times as much CPU time per KiB ({interval(ratio)})."
    )
    if isinstance(found, Missing):
        return Answer(question, f"{opening} The rows do not say why: {found.reason}.", tuple(facts))
    added = sorted(
        (s for s in found.steps if s.change.value > 0 and s.change.against(0.0) != SAME),
        key=lambda s: -s.change.value,
    )[:3]
    facts += [Fact(f"{b.impl} to {a.impl}", f"{s.name}: change", "ns/KiB", s.change) for s in found.steps]
    named = [f"{s.name} (+{number(s.change.value)} ns/KiB)" for s in added]
    cause = f"Most of it is {listed(named)}." if added else "No single part of the ledger explains it."
    fate = f" {_fate(a)}" if a.impl == "zero_copy" else ""
    return Answer(question, f"{opening} {cause}{fate}", tuple(facts))


def _fact(row: Row, metric: str) -> Fact:
    return Fact(_setting(row), METRICS[metric].label, METRICS[metric].unit, row.values[metric])


def _costs(*rows: Row) -> list[Fact]:
    """What a KiB costs in all, at each of these points."""
    quantity, unit = SHORT["system_cpu_ns_per_kib"], "ns/KiB"
    return [Fact(_setting(row), quantity, unit, row.values["system_cpu_ns_per_kib"]) for row in rows]


def _setting(row: Row) -> str:
    return f"{row.impl}, {_place(row)}"


def _place(row: Row) -> str:
    """Where a row was measured: `64 KiB, 1 thread`, and what else was swept."""
    shown = {"size": row.size, "threads": row.threads}
    shown |= {
        name: value for name, value in row.factors.items() if name not in ALWAYS and len(row.factors) < 8
    }
    return describe(shown)
