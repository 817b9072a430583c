# SPDX-License-Identifier: GPL-2.0-only
"""Report of a simulated experiment: plots, misses at each point, answers, claims, and the model's limits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean

from copyscope.base.spelling import format_bytes, format_whole_size, join_with_and
from copyscope.base.stats import grouped
from copyscope.record.derived import SimulatedRun
from copyscope.record.simulated import Model
from copyscope.report.blocks import Block, Bullets, Code, Heading, Paragraph, Picture, TableBlock
from copyscope.report.claim_judge import Judgement
from copyscope.report.model_points import (
    LEVELS,
    TITLES,
    ModelPoint,
    cache_bytes,
    change,
    copy_misses,
    estimate,
    is_clear,
    pairs,
)
from copyscope.report.plots.catalogue import MODELLED, Plot
from copyscope.report.questions import QuestionAnswer
from copyscope.report.wording import spell_estimate

# The two questions of the published reports that a model can answer.
CACHE_LEVEL = "Which cache level gains most from fewer copies?"
THREADS = "How do threads and cache contention interact?"
# Minimum of a clear change, in cache lines per KiB. A copy of 1 KiB moves 32 lines.
CLEAR_LINES_MIN = 1.0
# Minimum message size that the answers mention.
SIZE_MIN_BYTES = 1024
# Strategies that the answer about threads describes.
THREADED_STRATEGIES = ("two_copy", "one_copy", "zero_copy")


def modelled_answers(points: Sequence[ModelPoint]) -> list[QuestionAnswer]:
    """Return the answers that a model can give. Each answer says that it comes from a model."""
    return [answer for answer in (_cache_level(points), _threads(points)) if answer is not None]


def add_modelled_answers(
    measured: Sequence[QuestionAnswer], points: Sequence[ModelPoint]
) -> list[QuestionAnswer]:
    """Return the measured answers, each followed by the model's answer to that question, if there is one."""
    modelled = {answer.question: answer for answer in modelled_answers(points)}
    return [
        replace(answer, text=f"{answer.text} {other.text}", bullets=(*answer.bullets, *other.bullets))
        if (other := modelled.get(answer.question))
        else answer
        for answer in measured
    ]


def _opening(point: ModelPoint) -> str:
    """Return the opening of an answer, such as `In the model (...`, without the closing parenthesis."""
    return f"In the model ({point.setting.cache}, {point.setting.path}, Linux {point.setting.kernel}"


def _cache_level(points: Sequence[ModelPoint]) -> QuestionAnswer | None:
    """Answer which cache level gains most: compare `one_copy` with `two_copy`.

    The compared points have the smallest ring: the set of messages that a thread sends in rotation.
    """
    compared = _smallest_ring(pairs(points, "two_copy", "one_copy"))
    if not compared:
        return None
    bullets = []
    for two_copy, one_copy in (pair for pair in compared if pair[0].size >= SIZE_MIN_BYTES):
        changes = {level: change(two_copy.misses(level), one_copy.misses(level)) for level in LEVELS}
        gains = {
            level: changed.value
            for level, changed in changes.items()
            if is_clear(changed, CLEAR_LINES_MIN) and changed.value < 0
        }
        values = ", ".join(f"{TITLES[level]} {changed.value:+.1f}" for level, changed in changes.items())
        summary = (
            f"most in {TITLES[min(gains, key=lambda level: gains[level])]}"
            if gains
            else "in no level clearly"
        )
        bullets.append(f"{format_whole_size(two_copy.size)}: {values} lines per KiB: {summary}.")
    text = (
        f"{_opening(compared[0][0])}; misses of one_copy minus misses of two_copy, all processes)."
        " The saved copy reads 16 lines per KiB and writes 16. Most of these lines no longer miss L1D."
        " L2 gains if a message and its copy do not fit in L2. The last level gains nothing while messages"
        " fit in the last level."
    )
    return QuestionAnswer(CACHE_LEVEL, text, (), tuple(bullets))


def _threads(points: Sequence[ModelPoint]) -> QuestionAnswer | None:
    """Answer how threads interact with caches: compare the fewest simulated threads with the most.

    If only one thread was simulated, describe the expected effect of more threads.
    """
    compared = [pair for impl in THREADED_STRATEGIES for pair in _thread_pairs(points, impl)]
    if not compared:
        return _one_thread(points)
    few, many = compared[0]
    text = (
        f"{_opening(few)}; {format_whole_size(few.size)}, each thread with a core and"
        f" {format_bytes(few.working_set_bytes)} of different messages on each side):"
        f" {many.setting.threads} threads instead of {few.setting.threads} share the last level of"
        f" {format_bytes(few.model.llc_bytes)} and nothing else, so that only its misses change."
    )
    return QuestionAnswer(THREADS, text, (), tuple(_spell_thread_change(*pair) for pair in compared))


def _thread_pairs(points: Sequence[ModelPoint], impl: str) -> list[tuple[ModelPoint, ModelPoint]]:
    """Return the points of a strategy with the fewest and the most threads.

    The points are from the first setting that was simulated with several numbers of threads. The list is
    empty if there is none.
    """
    of_strategy = [point for point in points if point.impl == impl]
    groups = grouped(of_strategy, lambda point: (replace(point.setting, threads=1), point.size))
    several = (
        sorted(group, key=lambda point: point.setting.threads) for group in groups.values() if len(group) > 1
    )
    return [(group[0], group[-1]) for group in several][:1]


def _spell_thread_change(few: ModelPoint, many: ModelPoint) -> str:
    """Format the misses in a strategy's copies with few and with many threads, by cache level."""
    changes = {level: change(copy_misses(few, level), copy_misses(many, level)) for level in LEVELS}
    values = ", ".join(
        f"{TITLES[level]} {fmean(copy_misses(few, level)):.1f} -> {fmean(copy_misses(many, level)):.1f}"
        for level in LEVELS
    )
    changed_levels = [TITLES[level] for level in LEVELS if is_clear(changes[level], CLEAR_LINES_MIN)]
    summary = f"{join_with_and(changed_levels)} clearly" if changed_levels else "none clearly"
    return f"{few.impl}, misses of its copies in lines per KiB: {values}: {summary}."


def _one_thread(points: Sequence[ModelPoint]) -> QuestionAnswer | None:
    """Describe the misses of `one_copy` with one thread, by working set, and the effect of more threads.

    Return None if no message size was simulated with several working sets.
    """
    veth = [p for p in points if p.impl == "one_copy" and (p.setting.path, p.setting.threads) == ("veth", 1)]
    rings = [p for p in veth if p.setting.cache == veth[0].setting.cache]
    size = max((p.size for p in rings if sum(q.size == p.size for q in rings) > 1), default=None)
    if size is None:
        return None
    rings = sorted((p for p in rings if p.size == size), key=lambda p: p.working_set_bytes)
    remote_lines = [fmean(p.values(("remote_lines",), lambda row: row.category == "copy_out")) for p in rings]
    llc_bytes = rings[0].model.llc_bytes
    llc_misses = [f"{format_bytes(p.working_set_bytes)} {fmean(copy_misses(p, 'llc')):.1f}" for p in rings]
    remote_text = join_with_and(
        [f"{value:.1f}" for value in dict.fromkeys(round(value, 1) for value in remote_lines)]
    )
    text = (
        f"{_opening(rings[0])}; one_copy at {format_whole_size(size)}, one thread on each side). The copy"
        f" to the receiver finds {remote_text} lines per KiB in the other CPU's caches, and the rest in the"
        " shared last level. Misses of the copies in the last level, by the sender's working set:"
        f" {', '.join(llc_misses)} lines per KiB. Each thread has a working set of its own, and all share one"
        f" last level: {_spell_fit(rings, llc_bytes)}"
    )
    return QuestionAnswer(THREADS, text)


def _spell_fit(rings: Sequence[ModelPoint], llc_bytes: int) -> str:
    """Return a clause on how many rings fit in the last level at once, given the largest ring that fits.

    rings: points with different rings of messages (working sets)
    """
    inside = [p for p in rings if p.working_set_bytes < llc_bytes]
    if not inside or not llc_bytes:
        return "no simulated ring fits in the last level."
    largest = inside[-1].working_set_bytes
    return (
        f"its {format_bytes(llc_bytes)} hold {llc_bytes // largest} rings of {format_bytes(largest)};"
        " with more threads, misses begin. Only one thread was simulated."
    )


def _smallest_ring(
    compared: Sequence[tuple[ModelPoint, ModelPoint]],
) -> list[tuple[ModelPoint, ModelPoint]]:
    """Return the pairs with one thread, the first cache model and the smallest ring of messages.

    If there are pairs over veth, only these are returned.
    """
    single = [pair for pair in compared if pair[0].setting.threads == 1]
    chosen = [pair for pair in single if pair[0].setting.path == "veth"] or single
    if not chosen:
        return []
    ring = min(point.setting.working_set_messages for point, _ in chosen)
    cache = chosen[0][0].setting.cache
    return [
        (point, other)
        for point, other in chosen
        if (point.setting.working_set_messages, point.setting.cache) == (ring, cache)
    ]


# Sentences of the section "Limits of the model".
LIMITS = (
    "A model of the caches in QEMU counts how many lines each copy moves, and from which level. No real"
    " machine was measured.",
    "The model has no time, no overlap of misses, no instruction cache, and a prefetcher only on request."
    " Simulated CPUs take turns, so more data waits in sockets than on a real machine.",
    "After a warm-up, a boot counts while some MiB are sent. A working set larger than the last level is not"
    " sent completely, and the cache can still hold lines of an earlier strategy.",
    "In full: docs/5-simulated-caches.md.",
)


@dataclass(frozen=True)
class ModelStudy:
    """Results of a simulated experiment.

    left_out: pairs of (name, reason), one for each record that no figure uses
    """

    name: str
    question: str | None
    boots: Sequence[SimulatedRun]
    points: Sequence[ModelPoint]
    left_out: Sequence[tuple[str, str]]
    judgements: Sequence[Judgement]

    @property
    def caption(self) -> str:
        """Line about the simulation, for the foot of every plot."""
        first = self.boots[0].simulated
        boots = sorted({len(point.boots) for point in self.points})
        count = str(boots[0]) if len(boots) == 1 else f"{boots[0]} to {boots[-1]}"
        guest = f"Linux {first.kernel.release} in QEMU {first.qemu.version}"
        return f"Modelled, not measured: {guest}; means of {count} boots with 95 % intervals."


def document(study: ModelStudy, undrawn: Mapping[str, str]) -> list[Block]:
    """Return all blocks of the report. `undrawn`: name of a plot -> reason why the plot was not drawn."""
    blocks: list[Block] = [
        Heading(1, f"{study.name}: how many lines each copy moves, in a simulated machine", "top"),
        *([Paragraph(f"Question: {study.question}")] if study.question else []),
        Paragraph(study.caption, strong=True),
        Heading(2, "Plots", "plots"),
        *(_picture(plot, undrawn.get(plot.name)) for plot in MODELLED),
        Heading(2, "Table", "table"),
        _points_table(study.points),
        Heading(2, "Two questions", "questions"),
    ]
    for answer in modelled_answers(study.points):
        blocks += [Heading(3, answer.question, f"question-{len(blocks)}"), Paragraph(answer.text)]
        blocks += [Bullets(answer.bullets)] if answer.bullets else []
    blocks += [
        Heading(2, "Published claims, in the model", "claims"),
        Paragraph(
            "These verdicts are about the model. A report of a measured machine has separate verdicts."
        ),
        _claims_table(study.judgements),
        Heading(2, "The models", "models"),
        _models_table(study.points),
        Heading(2, "Limits of the model", "limits"),
        Bullets(LIMITS),
        *_failed(study),
        Heading(2, "Files beside this page", "files"),
        Code(
            "modelled.csv     one row per point and account or stage\n"
            "plots/           every plot as PNG (150 DPI) and SVG\n"
            "records.jsonl.gz the records, one line per boot: docs/reference/record.md"
        ),
    ]
    return blocks


def _picture(plot: Plot, reason: str | None) -> Block:
    """Return the picture of a plot, or a paragraph with the reason why the plot was not drawn."""
    if reason:
        return Paragraph(f"{plot.title}: not drawn: {reason}.")
    return Picture(plot.name, plot.title, plot.alt)


def _points_table(points: Sequence[ModelPoint]) -> TableBlock:
    """Return the table of cache misses, with one row per point."""
    columns = ["model", "path", "ring", "size", "strategy", "boots"]
    columns += [TITLES[level] for level in LEVELS] + [f"copies: {TITLES[level]}" for level in LEVELS]
    rows = [
        [
            *(point.setting.cache, point.setting.path, str(point.setting.working_set_messages)),
            *(format_whole_size(point.size), point.impl, str(len(point.boots))),
            *(spell_estimate(estimate(point.misses(level))) for level in LEVELS),
            *(spell_estimate(estimate(copy_misses(point, level))) for level in LEVELS),
        ]
        for point in points
    ]
    notes = [
        "Misses of loads and stores, lines per KiB delivered, all processes; ring: messages sent in turn."
    ]
    return TableBlock(
        columns, rows, frozenset((2, 3, *range(5, len(columns)))), notes, "Misses per KiB, modelled"
    )


def _claims_table(judgements: Sequence[Judgement]) -> TableBlock:
    """Return the table of published claims, each with its verdict in the model."""
    rows = [
        [
            judgement.claim.id,
            judgement.claim.text,
            ", ".join(judgement.claim.sources),
            judgement.modelled.verdict,
            judgement.modelled.evidence,
        ]
        for judgement in judgements
        if judgement.modelled is not None
    ]
    return TableBlock(
        ["id", "claim", "source", "in the model", "evidence"], rows, title="Claims, judged in the model"
    )


def _models_table(points: Sequence[ModelPoint]) -> TableBlock:
    """Return the table of cache models: the size of each level, and the source of the model."""
    models = {point.model.name: point.model for point in points}
    rows = [
        [
            name,
            *(_spell_level(model, level) for level in LEVELS),
            model.inclusion,
            model.prefetch,
            model.source,
        ]
        for name, model in models.items()
    ]
    columns = ["model", *TITLES.values(), "last level", "prefetcher", "source"]
    return TableBlock(columns, rows, title="Models of the caches")


def _spell_level(model: Model, level: str) -> str:
    size, ways = cache_bytes(model, level), getattr(model, f"{level}_ways")
    return f"{format_bytes(size)} in {ways} ways" if size else "none"


def _failed(study: ModelStudy) -> list[Block]:
    """Return the section about invalid boots and skipped records."""
    rows = [[boot.run.id, "; ".join(boot.verdict.reasons)] for boot in study.boots if not boot.verdict.valid]
    rows += [[name, reason] for name, reason in study.left_out]
    blocks: list[Block] = [Heading(2, "Invalid boots and skipped records", "invalid")]
    if not rows:
        return [*blocks, Paragraph("No boot was invalid, and no record was left out.")]
    return [
        *blocks,
        TableBlock(
            ["record", "reason"],
            rows,
            title="Left out of all figures: the points that a boot's reason names, or a whole record",
        ),
    ]
