# SPDX-License-Identifier: GPL-2.0-only
"""Results of an experiment: all values in its report, and the report's tables.

All functions are pure: no input, no output.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from msgspec import structs

from copyscope.base.spelling import NOT_AVAILABLE, counted, format_size
from copyscope.base.stats import Estimate, Missing, gathered, grouped
from copyscope.judge.crossover import (
    PAIRS,
    Costs,
    Crossover,
    costs_of,
    crossovers_of,
    where_second_is_better,
)
from copyscope.judge.crossover_sentences import path_sentence
from copyscope.judge.metrics import METRICS
from copyscope.ledger.noise import of_runs
from copyscope.record.instruments import Sample
from copyscope.record.measured import Machine
from copyscope.record.run import CompleteRun, Run
from copyscope.record.traffic import Traffic
from copyscope.report.answer import Answer, answer
from copyscope.report.blocks import Cell, TableBlock, Tone
from copyscope.report.claim_judge import HOLDS, REFUTED, Judgement
from copyscope.report.model_points import ModelPoint
from copyscope.report.modelled import add_modelled_answers
from copyscope.report.questions import SHORT, QuestionAnswer, answers
from copyscope.report.study_table import (
    PARTS,
    REST,
    RatioView,
    StudyRow,
    Waterfall,
    describe,
    ratio_views,
    varied,
    waterfalls,
)
from copyscope.report.table_files import spell_path
from copyscope.report.wording import spell_estimate
from copyscope.taxonomy.accounts import ACCOUNTS


@dataclass(frozen=True)
class Study:
    """Results of one experiment.

    left_out: pairs of (name, reason), one for each record that no figure uses
    rows: points of the experiment with their estimates
    costs: CPU time per KiB of the compared strategies
    saved: waterfalls from a strategy that copies to one that avoids the copy
    answers: answers to the six questions
    judgements: verdicts on the published claims
    answer: cost of each value of the compared factor; None if the sweep compares only sizes or threads
    """

    name: str
    question: str | None
    runs: Sequence[Run]
    left_out: Sequence[tuple[str, str]]
    rows: Sequence[StudyRow]
    crossings: Sequence[Crossover]
    ratios: Sequence[RatioView]
    costs: Sequence[Costs]
    saved: Sequence[Waterfall | Missing]
    answers: Sequence[QuestionAnswer]
    judgements: Sequence[Judgement]
    answer: Answer | None = None

    @property
    def has_crossovers(self) -> bool:
        """Return True if two strategies were measured at several sizes, so that they may cross."""
        return any(len(crossing.measured) > 1 for crossing in self.crossings)

    @property
    def verdict(self) -> str:
        """The answer to the question of the experiment, in sentences."""
        if self.answer is None or (self.answer.factor == "impl" and self.has_crossovers):
            return path_sentence(self.crossings, self.runs)
        return self.answer.sentence

    @property
    def machine(self) -> Machine:
        """The machine that measured all runs: loading a sweep rejects records from other machines."""
        return self.runs[0].raw.machine

    @property
    def invalid(self) -> list[Run]:
        return [run for run in self.runs if not run.derived.verdict.valid]


def examine(
    name: str,
    question: str | None,
    runs: Sequence[Run],
    rows: Sequence[StudyRow],
    *,
    left_out: Sequence[tuple[str, str]],
    judgements: Sequence[Judgement],
    factors: Mapping[str, Sequence[object]],
    modelled: Sequence[ModelPoint] = (),
) -> Study:
    """Return the study of an experiment.

    name, question: name of the experiment, and the question that it answers
    runs: runs in the order in which they were measured
    rows: table of the runs
    factors: the experiment's factors and values, in its order; empty if the experiment is unknown
    modelled: points of simulated machines; these add text to two answers but change no number
    """
    crossings = crossovers_of(runs)
    return Study(
        name=name,
        question=question,
        runs=runs,
        left_out=left_out,
        rows=rows,
        crossings=crossings,
        ratios=ratio_views(rows, crossings),
        costs=costs_of(runs),
        saved=waterfalls(rows),
        answers=add_modelled_answers(answers(rows, crossings), modelled),
        judgements=judgements,
        answer=answer(rows, factors),
    )


def as_reported(run: CompleteRun) -> CompleteRun:
    """Return a run without the data that no page or table uses, so that hundreds of runs fit in memory.

    The page needs function names only for copies, and only the round trips from the sender's and receiver's
    reports.
    """
    if not isinstance(run, Run) or run.raw.traffic is None:
        return run
    traffic = run.raw.traffic
    round_trips = {
        name: times for name, times in traffic.sender.histograms.items() if name == "round_trip_ns"
    }
    kept_traffic = Traffic(
        structs.replace(traffic.sender, threads=[], options={}, histograms=round_trips),
        structs.replace(traffic.receiver, threads=[], options={}, histograms={}),
    )
    samples = _merge_stage_samples(run.raw.samples)
    return Run(
        structs.replace(run.raw, samples=samples, hooks=[], stacks=None, traffic=kept_traffic), run.derived
    )


def _merge_stage_samples(samples: Iterable[Sample]) -> list[Sample]:
    """Merge each stage's samples in all functions into one sum. Samples in copies stay unchanged."""
    copies = [sample for sample in samples if sample.kind != "stage"]
    stages = grouped(
        (sample for sample in samples if sample.kind == "stage"),
        lambda row: (row.side, row.context, row.event, row.category, row.tie),
    )
    return copies + [
        structs.replace(rows[0], symbol="", samples=sum(row.samples for row in rows))
        for rows in stages.values()
    ]


def caption(runs: Sequence[Run], rows: Sequence[StudyRow]) -> str:
    """Return one line for the foot of every plot: machine, path, method, and run-to-run noise."""
    machine = runs[0].raw.machine
    guest = f", virtual machine (hypervisor {machine.hypervisor})" if machine.hypervisor else ""
    where = f"{machine.cpu_model}, {machine.cpus_online} CPUs{guest}, Linux {machine.kernel}"
    paths = sorted({spell_path(run.raw.topology) for run in runs})
    path = paths[0] if len(paths) == 1 else f"{len(paths)} paths"
    has_intervals = any(row.valid > 1 for row in rows)
    estimates = "medians of valid runs with 95 % intervals" if has_intervals else "no intervals"
    how = f"{duration(runs)} per run, {repeats(rows)}; {estimates}"
    noise = of_runs([run for run in runs if run.derived.verdict.valid])
    return f"{where}; {path}; {how}{f'; {noise}' if noise else ''}."


def duration(runs: Sequence[Run]) -> str:
    """Format the duration of a run: the requested time, or the median duration if requested times differ."""
    asked = {run.raw.asked.duration_s for run in runs}
    if len(asked) == 1 and None not in asked:
        return f"{asked.pop():g} s"
    middle = median(run.raw.run.measured_s for run in runs)
    return f"{float(f'{middle:.3g}'):g} s (median)"


def repeats(rows: Sequence[StudyRow]) -> str:
    """Format the number of runs per point: `5 repeats`, `3 to 5 repeats`."""
    counts = sorted({row.valid + row.invalid for row in rows})
    return counted(counts[0], "repeat") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} repeats"


# Metrics of the table of results.
RESULTS = (
    *("goodput_gbps", "time_per_message_us", "rtt_p50_us", "rtt_p99_us", "sender_cpu_ns_per_kib"),
    *("receiver_cpu_ns_per_kib", "system_cpu_ns_per_kib", "cycles_per_byte_sender"),
    *("cycles_per_byte_receiver", "l1d_misses_per_kib_sender", "l1d_misses_per_kib_receiver"),
    *("llc_misses_per_kib_sender", "llc_misses_per_kib_receiver", "copied_share"),
    "overhead_effect",
)
# Verdict of a crossover or on a claim -> background colour of its cell.
CROSSING_TONES: dict[str, Tone] = {"always": "good", "crosses": "good", "never": "bad"}
TONES: dict[str, Tone] = {HOLDS: "good", REFUTED: "bad"}
INTERVALS = "In brackets: 95 % interval of the median."


def results_table(study: Study) -> TableBlock:
    """Return the table of results: one row per point with the main metrics. results.csv has all metrics."""
    swept = varied(study.rows, without=("impl", "size", "threads"))
    lines = [(_keys(row, swept), [row.values[name] for name in RESULTS]) for row in study.rows]
    names = [f"{METRICS[name].label} ({METRICS[name].unit})" for name in RESULTS]
    return estimates_table("Results", _key_names(swept), names, lines, [INTERVALS])


def estimates_table(
    title: str,
    keys: Sequence[str],
    names: Sequence[str],
    lines: Sequence[tuple[Sequence[str], Sequence[Estimate | Missing]]],
    notes: Sequence[str] = (),
) -> TableBlock:
    """Return a table of estimates. A column without values is left out; a note below gives the reason.

    keys: titles of the first columns
    names: titles of the columns with estimates
    lines: rows of the table, as pairs of (cells of the first columns, estimates)
    """
    kept: list[int] = []
    absent: list[tuple[str, str]] = []  # (reason, column) of columns without values
    partly: list[tuple[str, str]] = []  # (reason, column) of columns with some values
    for index, name in enumerate(names):
        column = [values[index] for _, values in lines]
        reasons = list(dict.fromkeys(value.reason for value in column if isinstance(value, Missing)))
        if any(isinstance(value, Estimate) for value in column):
            kept.append(index)
            partly += [(f"n/a: {reason}", name) for reason in reasons]
        else:
            absent.append((f"n/a in every row: {reasons[0] if reasons else 'no row'}", name))
    reason_notes = [
        f"{', '.join(columns)}: {reason}." for reason, columns in gathered([*absent, *partly]).items()
    ]
    rows = [[*key, *(spell_estimate(values[i]) for i in kept)] for key, values in lines]
    columns = [*keys, *(names[i] for i in kept)]
    return TableBlock(
        columns, rows, frozenset(range(len(keys), len(columns))), [*notes, *reason_notes], title
    )


def _keys(row: StudyRow, swept: Sequence[str]) -> list[str]:
    """Return a row's first cells: strategy, size, threads, varied factors, and number of runs.

    swept: names of the varied factors
    """
    rest = [str(row.factors.get(name)) for name in swept]
    runs = str(row.valid) + (f" (+{row.invalid} invalid)" if row.invalid else "")
    return [row.impl, format_size(row.size), str(row.threads), *rest, runs]


def _key_names(swept: Sequence[str]) -> list[str]:
    return ["strategy", "message", "threads", *(name.replace("_", " ") for name in swept), "runs"]


def copies_table(study: Study) -> TableBlock:
    """Return the table of accounts (copies, and the work that replaces copies) in ns per KiB, by context."""
    swept = varied(study.rows, without=("impl", "size", "threads"))
    order = [*ACCOUNTS]
    keys = sorted(
        {key for row in study.rows for key in row.accounts if key[0] in ACCOUNTS},
        key=lambda key: (order.index(key[0]), key[1] != "sender", key),
    )
    keys = [k for k in keys if any(k in row.accounts and row.accounts[k].value > 0 for row in study.rows)]
    lines = [
        (_keys(row, swept), [row.accounts.get(key, Missing("not sampled at this point")) for key in keys])
        for row in study.rows
    ]
    names = [f"{ACCOUNTS[account].title} ({side}, {context})" for account, side, context in keys]
    return estimates_table("Copies: CPU time, ns/KiB", _key_names(swept), names, lines, [INTERVALS])


def saved_tables(saved: Sequence[Waterfall | Missing]) -> list[TableBlock]:
    """Return a table for each compared pair. Each row is a waterfall: start, steps and end in ns per KiB.

    saved: waterfalls, or the reasons why they are missing
    """
    reasons = dict.fromkeys(f"left out: {item.reason}." for item in saved if isinstance(item, Missing))
    notes = [
        "Below 0: saved, above 0: added. All processes together. Steps come from paired repeats and add up.",
        *reasons,
    ]
    by_pair = grouped((item for item in saved if isinstance(item, Waterfall)), lambda w: (w.by, w.names))
    return [_saved_table(waterfalls, notes) for waterfalls in by_pair.values()]


def _saved_table(waterfalls: Sequence[Waterfall], notes: Sequence[str]) -> TableBlock:
    """Return the table of one pair's waterfalls, with notes below it."""
    (first, second), by = waterfalls[0].names, waterfalls[0].by
    parts = [
        name
        for name in (*PARTS, REST)
        if any(step.name == name for waterfall in waterfalls for step in waterfall.steps)
    ]
    swept = varied([waterfall.after for waterfall in waterfalls], without=(by,)) or ["size"]
    rows = []
    for waterfall in waterfalls:
        change = {step.name: step.change for step in waterfall.steps}
        cells = [spell_estimate(change[name]) if name in change else "0" for name in parts]
        setting = describe({name: waterfall.after.factors.get(name) for name in swept})
        rows.append([setting, f"{waterfall.start:.4g}", *cells, f"{waterfall.end:.4g}"])
    columns = ["setting", first, *parts, second]
    title = f"Where the saved copy went: ns/KiB from {first} to {second}"
    return TableBlock(columns, rows, frozenset(range(1, len(columns))), notes, title)


def facts_table(answer: QuestionAnswer) -> TableBlock:
    """Return the table of facts on which an answer is based."""
    rows = [[fact.setting, fact.quantity, spell_estimate(fact.value), fact.unit] for fact in answer.facts]
    reasons = dict.fromkeys(
        f"n/a: {fact.value.reason}." for fact in answer.facts if isinstance(fact.value, Missing)
    )
    columns = ["setting", "quantity", "value", "unit"]
    return TableBlock(columns, rows, frozenset((2,)), list(reasons), "Evidence")


def verdict_table(crossings: Sequence[Crossover]) -> TableBlock:
    """Return a summary of all crossovers: a row per pair and metric, a column per number of threads."""
    metrics = list(SHORT)
    chosen = [crossing for crossing in crossings if crossing.quantity in metrics]
    threads = sorted({crossing.threads for crossing in chosen})
    lines: dict[tuple[str, str, str], dict[int, Cell]] = {}
    for crossing in sorted(chosen, key=lambda c: (PAIRS.index(c.pair), metrics.index(c.quantity))):
        pair = f"{crossing.pair[1]} against {crossing.pair[0]}"
        tone = CROSSING_TONES.get(crossing.verdict, "open")
        cell = Cell(where_second_is_better(crossing), tone, _anchor(crossings.index(crossing)))
        line = lines.setdefault((pair, SHORT[crossing.quantity], describe(crossing.where)), {})
        line[crossing.threads] = cell
    several = any(setting for _, _, setting in lines)
    rows = [
        [pair, label, *([setting] if several else []), *(cells.get(n, "not measured") for n in threads)]
        for (pair, label, setting), cells in lines.items()
    ]
    columns = ["pair", "by", *(["setting"] if several else []), *(counted(n, "thread") for n in threads)]
    notes = [
        "Each cell says where the first strategy of the pair is better or worse than the second. At other"
        " sizes no difference was found. In brackets: 95 % interval of the size. Click a cell for its"
        " evidence."
    ]
    return TableBlock(columns, rows, frozenset(), notes)


def _anchor(index: int) -> str:
    return f"crossover-{index + 1}"


def _spell_size(crossing: Crossover) -> str:
    """Format a crossover's size with its interval."""
    return f"{format_size(crossing.size_bytes)} [{format_size(crossing.low)}, {format_size(crossing.high)}]"


def crossovers_table(crossings: Sequence[Crossover]) -> TableBlock:
    """Return the table of crossovers by pair, threads and metric, with size, interval and evidence."""
    rows: list[list[str | Cell]] = []
    for crossing in crossings:
        if crossing.size_bytes is None:
            size = NOT_AVAILABLE
        elif crossing.low is None and crossing.high is None:
            size = format_size(crossing.size_bytes)
        else:
            size = _spell_size(crossing)
        verdict = Cell(crossing.verdict, CROSSING_TONES.get(crossing.verdict, "open"))
        setting = [" / ".join(reversed(crossing.pair)), str(crossing.threads), describe(crossing.where)]
        rows.append([*setting, METRICS[crossing.quantity].label, verdict, size, crossing.evidence])
    columns = ["pair", "threads", "setting", "quantity", "verdict", "size", "evidence"]
    anchors = [_anchor(index) for index in range(len(rows))]
    return TableBlock(columns, rows, frozenset((1, 5)), (), "Crossovers", anchors)


def claims_table(study: Study) -> TableBlock:
    """Return the table of published claims, each with this sweep's verdict."""
    rows: list[list[str | Cell]] = [
        [
            judgement.claim.id,
            judgement.claim.text,
            ", ".join(judgement.claim.sources),
            Cell(judgement.verdict, TONES.get(judgement.verdict, "open")),
            judgement.evidence,
        ]
        for judgement in study.judgements
    ]
    return TableBlock(
        ["id", "claim", "source", "verdict", "evidence"], rows, title="Claims, judged by this sweep"
    )
