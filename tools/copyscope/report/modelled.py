"""The report of a simulated experiment: plots, misses of each point, answers, claims, and what it is not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from copyscope.record.derived import SimulatedRun
from copyscope.record.simulated import Model
from copyscope.report.blocks import Block, Bullets, Code, Heading, Paragraph, Picture, Table
from copyscope.report.cells import spell
from copyscope.report.plots.catalogue import MODELLED, Plot
from copyscope.study.claims.judge import Judgement
from copyscope.study.modelled import LEVELS, TITLES, ModelPoint, copies, estimate, size_of
from copyscope.study.modelled_answers import modelled_answers
from copyscope.units import format_bytes, format_whole_size

LIMITS = (
    "Counted in QEMU by a model of the caches: how many lines each copy moves, and from which level. It"
    " measures no real machine.",
    "The model has no time, no overlap of misses, no instruction cache and no prefetcher unless asked for."
    " Its CPUs take turns, so more data waits in sockets than on real ones.",
    "A boot counts some MiB after a warm-up: a working set larger than the last level is not sent"
    " completely, and the cache may still hold lines of an earlier strategy.",
    "In full: docs/5-simulated-caches.md.",
)


@dataclass(frozen=True)
class ModelStudy:
    """All that the report says. `left_out`: names of records that are in no number, each with its reason."""

    name: str
    question: str | None
    boots: Sequence[SimulatedRun]
    points: Sequence[ModelPoint]
    left_out: Sequence[tuple[str, str]]
    judgements: Sequence[Judgement]

    @property
    def caption(self) -> str:
        """What was simulated, in one line: it stands under every plot."""
        first = self.boots[0].simulated
        boots = sorted({len(point.boots) for point in self.points})
        count = str(boots[0]) if len(boots) == 1 else f"{boots[0]} to {boots[-1]}"
        guest = f"Linux {first.kernel.release} in QEMU {first.qemu.version}"
        return f"Modelled, not measured: {guest}; means of {count} boots with 95 % intervals."


def document(study: ModelStudy, undrawn: Mapping[str, str]) -> list[Block]:
    """All blocks of the report."""
    blocks: list[Block] = [
        Heading(1, f"{study.name}: how many lines each copy moves, in a simulated machine", "top"),
        *([Paragraph(f"Question: {study.question}")] if study.question else []),
        Paragraph(study.caption, strong=True),
        Heading(2, "Plots", "plots"),
        *(_plot(plot, undrawn.get(plot.name)) for plot in MODELLED),
        Heading(2, "Table", "table"),
        _points_table(study.points),
        Heading(2, "Two questions", "questions"),
    ]
    for answer in modelled_answers(study.points):
        blocks += [Heading(3, answer.question, f"question-{len(blocks)}"), Paragraph(answer.text)]
        blocks += [Bullets(answer.bullets)] if answer.bullets else []
    blocks += [
        Heading(2, "Published claims, in the model", "claims"),
        Paragraph("These verdicts are of the model; a measured machine has verdicts of its own."),
        _claims_table(study.judgements),
        Heading(2, "The models", "models"),
        _models_table(study.points),
        Heading(2, "What it is not", "limits"),
        Bullets(LIMITS),
        *_failed(study),
        Heading(2, "Files beside this page", "files"),
        Code(
            "modelled.csv     modelled.parquet   one row per point and account or stage\n"
            "plots/           every plot as PNG (300 DPI) and SVG\n"
            "records.jsonl.gz the records, one line per boot: docs/reference/record.md"
        ),
    ]
    return blocks


def _plot(plot: Plot, why_not: str | None) -> Block:
    if why_not:
        return Paragraph(f"{plot.title}: not drawn: {why_not}.")
    return Picture(plot.name, plot.title, plot.alt)


def _points_table(points: Sequence[ModelPoint]) -> Table:
    columns = ["model", "path", "ring", "size", "strategy", "boots"]
    columns += [TITLES[level] for level in LEVELS] + [f"copies: {TITLES[level]}" for level in LEVELS]
    rows = [
        [
            *(point.setting.cache, point.setting.path, str(point.setting.working_set_messages)),
            *(format_whole_size(point.size), point.impl, str(len(point.boots))),
            *(spell(estimate(point.misses(level))) for level in LEVELS),
            *(spell(estimate(copies(point, level))) for level in LEVELS),
        ]
        for point in points
    ]
    notes = ["Misses of loads and stores, lines per KiB delivered, all sides; ring: messages sent in turn."]
    return Table(columns, rows, frozenset((2, 3, *range(5, len(columns)))), notes, "Misses per KiB, modelled")


def _claims_table(judgements: Sequence[Judgement]) -> Table:
    rows = [
        [
            one.claim.id,
            one.claim.text,
            ", ".join(one.claim.sources),
            one.modelled.verdict,
            one.modelled.evidence,
        ]
        for one in judgements
        if one.modelled is not None
    ]
    return Table(
        ["id", "claim", "source", "in the model", "evidence"], rows, title="Claims, judged in the model"
    )


def _models_table(points: Sequence[ModelPoint]) -> Table:
    models = {point.model.name: point.model for point in points}
    rows = [
        [name, *(_level(one, level) for level in LEVELS), one.inclusion, one.prefetch, one.source]
        for name, one in models.items()
    ]
    columns = ["model", *TITLES.values(), "last level", "prefetcher", "source"]
    return Table(columns, rows, title="Models of the caches")


def _level(model: Model, level: str) -> str:
    size, ways = size_of(model, level), getattr(model, f"{level}_ways")
    return f"{format_bytes(size)} in {ways} ways" if size else "none"


def _failed(study: ModelStudy) -> list[Block]:
    rows = [[boot.run.id, "; ".join(boot.verdict.reasons)] for boot in study.boots if not boot.verdict.valid]
    rows += [[name, reason] for name, reason in study.left_out]
    blocks: list[Block] = [Heading(2, "Invalid boots, and what was left out", "invalid")]
    if not rows:
        return [*blocks, Paragraph("No boot was invalid, none was left out.")]
    return [
        *blocks,
        Table(
            ["record", "why"],
            rows,
            title="Left out of all figures: the named point of a boot, or all of a record",
        ),
    ]
