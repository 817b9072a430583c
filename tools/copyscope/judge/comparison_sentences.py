# SPDX-License-Identifier: GPL-2.0-only
"""Comparisons in sentences: one for each quantity, with its interval and its verdict. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from copyscope.base.spelling import three_digits
from copyscope.judge.difference import (
    ALL_COPIES,
    BETTER,
    BYTES,
    CALLS,
    CPU_ROW,
    EXACT_THRESHOLD,
    GOODPUT_ROW,
    SAME,
    UNKNOWN,
    UNSURE,
    WORSE,
    Appeared,
    Difference,
    DifferenceRow,
)
from copyscope.taxonomy.accounts import ACCOUNTS, LATE, called

# Text for each unwanted copy, with its share of the bytes; `compare` prints it for each strategy.
COPIED_TEXTS = {
    **{name: f"{{}} of the bytes {ACCOUNTS[name].amount}" for name in LATE},
    "flagged": "{} of the sends were reported as copied",
}
# Unwanted copy -> text that names it, in a comparison before and after a change.
APPEARED_TEXTS = {**{name: ACCOUNTS[name].appeared for name in LATE}, "flagged": "sends that were copied"}


def settings_sentence(
    verdict: str, points: Sequence[Difference], overall: Sequence[DifferenceRow], names: Sequence[str]
) -> str:
    """Return the numbers of settings with each verdict, and the mean change of each quantity.

    overall: mean changes over all settings
    names: names of the two groups
    """
    tally = [(sum(point.verdict == word for point in points), word) for word in (WORSE, BETTER, SAME, UNSURE)]
    counts = ", ".join(f"{count} {word}" for count, word in tally if count)
    means = " ".join(["On average:", *_quantity_sentences(overall, names)]) if overall else ""
    return f"{verdict}: of {len(points)} settings, {counts}. {means}".rstrip()


def change_sentences(point: Difference, names: Sequence[str]) -> str:
    """Describe the effects of a change: first the exact counts, then CPU time, goodput and round trips."""
    deciding = [row for row in point.rows if row.decides and row.base == "itself" and row.unit != CALLS]
    return " ".join([*_count_sentences(point), *_quantity_sentences(deciding, names)])


def choice_sentences(point: Difference, names: Sequence[str]) -> str:
    """Describe how the second strategy compares with the first in CPU time, goodput and copies."""
    deciding = [row for row in point.rows if row.decides and row.base == "itself"]
    sentences = list(_quantity_sentences(deciding, names))
    fewer_copies = (ALL_COPIES, BYTES, BETTER)
    copies = next((row for row in point.rows if (row.what, row.unit, row.verdict) == fewer_copies), None)
    if copies is not None:
        amounts = f"{copies.after:.2f} bytes per delivered byte instead of {copies.before:.2f}"
        sentences.append(f"It copies {amounts}.")
    copied = [COPIED_TEXTS[copy.copy].format(percent(copy.after)) for copy in point.appeared]
    if copied:
        path = point.setting.get("topology", "these paths")
        sentences.append(f"Over {path} the kernel copied anyway: {', '.join(copied)}.")
    return " ".join(sentences)


def _count_sentences(point: Difference) -> Iterator[str]:
    """Yield a sentence for each copy that appeared or vanished, or for the change of all counted copies."""
    yield from map(_appeared_sentence, point.appeared)
    counts = [row for row in point.rows if row.unit == BYTES]
    vanished = [row for row in counts if row.what != ALL_COPIES and _vanished(row)]
    for row in vanished:
        name = called(row.what, watched=row.side == "target", side=row.side)
        amounts = f"{row.before:.2f} bytes per delivered byte before, {row.after:.2f} after"
        yield f"{_capital(name)} vanished: {amounts}."
    if point.appeared or vanished:
        return
    for row in counts:
        if row.what == ALL_COPIES and row.verdict in (WORSE, BETTER):
            yield f"Counted copies per byte: {row.before:.2f} before, {row.after:.2f} after: {row.verdict}."


def _appeared_sentence(copy: Appeared) -> str:
    before, after = percent(copy.before), percent(copy.after)
    return f"{_capital(APPEARED_TEXTS[copy.copy])} appeared: {before} before, {after} after: {WORSE}."


def _vanished(row: DifferenceRow) -> bool:
    """Return True if some bytes passed through a copy before a change, and almost none do afterwards."""
    return (row.before or 0.0) > EXACT_THRESHOLD and row.after is not None and row.after < EXACT_THRESHOLD


def _quantity_sentences(rows: Sequence[DifferenceRow], names: Sequence[str]) -> Iterator[str]:
    """Yield a sentence for CPU time, then for goodput, then for each other quantity."""
    order = (CPU_ROW, GOODPUT_ROW)
    for row in sorted(rows, key=lambda row: order.index(row.what) if row.what in order else len(order)):
        yield quantity_sentence(row, *names)


def quantity_sentence(row: DifferenceRow, first: str, second: str) -> str:
    """Describe how a quantity differs between two groups of runs, with its interval and verdict.

    An example is `zero_copy costs 82 % more CPU time than one_copy (+30 to +156 %): worse.`
    """
    name = row.what if row.what in (GOODPUT_ROW, CPU_ROW) else f"{row.what} ({row.unit})"
    if row.change is None or row.verdict not in (WORSE, BETTER):
        return f"{_capital(name)}: {change_text(row)}."
    amount = f"{_spell_percent(abs(row.change))} {'more' if row.change > 0 else 'less'}"
    if row.what == CPU_ROW:
        return f"{second} costs {amount} CPU time than {first}{interval_text(row)}: {row.verdict}."
    if row.what == GOODPUT_ROW:
        return f"{second} has {amount} goodput than {first}{interval_text(row)}: {row.verdict}."
    return f"{second} has {amount} {name} than {first}{interval_text(row)}: {row.verdict}."


def change_text(row: DifferenceRow) -> str:
    """Return the change of a quantity, its interval and its verdict: `+82 % (+30 to +156 %): worse`."""
    if row.change is None or row.is_unknown:
        return f"unknown ({row.reason})"
    amount, interval = _signed_percent(row.change), interval_text(row)
    if row.verdict in (WORSE, BETTER):
        return f"{amount}{interval}: {row.verdict}"
    if row.verdict == UNKNOWN:
        return f"{amount} within one run of each{interval}: no verdict"
    if row.verdict == SAME:
        return f"no difference{interval}"
    if row.low is not None and row.high is not None and row.low <= 0 <= row.high:
        return f"no difference found{interval}"
    return f"{amount}{interval}, perhaps below the threshold of {_spell_percent(row.threshold)}"


def interval_text(row: DifferenceRow) -> str:
    """Return the interval of a change in brackets, such as ` (-7 to -3 %)`, or "" if it is unknown."""
    if row.low is None or row.high is None:
        return ""
    # Adding 0.0 turns -0 into +0.
    low, high = (f"{round(end * 100) + 0.0:+.0f}" for end in (row.low, row.high))
    return f" ({low} %)" if low == high else f" ({low} to {high} %)"


def _signed_percent(share: float) -> str:
    return f"{'-' if share < 0 else '+'}{_spell_percent(abs(share))}"


def _spell_percent(share: float) -> str:
    """Format a share (>= 0) in percent: whole percents from 10 % on, otherwise two digits."""
    value = 100 * share
    return f"{value:,.0f} %" if value >= 9.95 else f"{value:.2g} %"


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def percent(share: float) -> str:
    return f"{100 * share:.3g} %"


@dataclass(frozen=True)
class Ranked:
    """A strategy in a ranking.

    goodput, cpu: differences from `against`, the next faster strategy
    cpu_against_first: difference of CPU time from the strategy that the user named first; None for that
        strategy
    """

    name: str
    gbps: float | None
    cpu_ns_per_kib: float | None
    against: str | None = None
    goodput: DifferenceRow | None = None
    cpu: DifferenceRow | None = None
    cpu_against_first: DifferenceRow | None = None

    @property
    def differs(self) -> bool:
        """Return True if the goodput differs for certain from that of the next faster strategy."""
        return self.goodput is not None and self.goodput.verdict in (WORSE, BETTER)

    def __str__(self) -> str:
        return f"{self.name} {'n/a' if self.gbps is None else f'{three_digits(self.gbps)} Gb/s'}"


def ranking_sentences(rows: Sequence[Ranked], first: str) -> str:
    """Describe the order by goodput, and how each strategy's CPU time compares with the first's.

    rows: the strategies, the fastest first
    first: the strategy that the user named first
    """
    fastest, *rest = rows
    order = ", ".join([str(fastest), *(f"{row}{_equality_note(row)}" for row in rest)])
    changes = [
        f"{row.name} {change_text(row.cpu_against_first)}"
        for row in rows
        if row.cpu_against_first is not None
    ]
    return f"Goodput, the fastest first: {order}. CPU time against {first}: {'; '.join(changes)}."


def _equality_note(row: Ranked) -> str:
    """Return a note for a strategy that may be as fast as the next faster one, or an empty string."""
    goodput = row.goodput
    if goodput is None or row.differs:
        return ""
    if goodput.high is not None and goodput.high < 0 and goodput.verdict == UNSURE:
        return f" (perhaps within {_spell_percent(goodput.threshold)} of {row.against})"
    return f" (no difference found from {row.against})"
