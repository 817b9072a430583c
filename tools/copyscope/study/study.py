"""A study: everything that a report says of one experiment, worked out once. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from copyscope.judge.crossover import Costs, Crossover, costs_of, crossovers_of
from copyscope.record.check import Whole
from copyscope.record.measured import Machine
from copyscope.stats import Missing
from copyscope.study.claims.judge import Judgement
from copyscope.study.cost_waterfall import Waterfall, waterfalls
from copyscope.study.modelled import ModelPoint
from copyscope.study.modelled_answers import beside
from copyscope.study.published import spell_path
from copyscope.study.questions import Answer, answers
from copyscope.study.table import Row
from copyscope.units import counted


@dataclass(frozen=True)
class Study:
    """`left_out`: names of what is in no number, each with its reason."""

    name: str
    question: str | None
    runs: Sequence[Whole]
    left_out: Sequence[tuple[str, str]]
    rows: Sequence[Row]
    crossings: Sequence[Crossover]
    costs: Sequence[Costs]
    saved: Sequence[Waterfall | Missing]
    answers: Sequence[Answer]
    judgements: Sequence[Judgement]

    @property
    def machine(self) -> Machine:
        """Of all runs: results.load has refused those of another."""
        return self.runs[0].raw.machine

    @property
    def invalid(self) -> list[Whole]:
        return [run for run in self.runs if not run.derived.verdict.valid]


def examine(
    name: str,
    question: str | None,
    runs: Sequence[Whole],
    rows: Sequence[Row],
    *,
    left_out: Sequence[tuple[str, str]],
    judgements: Sequence[Judgement],
    modelled: Sequence[ModelPoint] = (),
) -> Study:
    """The study of some runs, in the order in which they ran; `rows`: their table.

    `modelled`: of simulated machines; they have a say in two answers, and in no number.
    """
    crossings = crossovers_of(runs)
    found = beside(answers(rows, crossings), modelled)
    worked_out = (rows, crossings, costs_of(runs), waterfalls(rows), found)
    return Study(name, question, runs, left_out, *worked_out, judgements)


def caption(runs: Sequence[Whole], rows: Sequence[Row]) -> str:
    """Where and how it was measured, in one line: it stands under every plot."""
    machine = runs[0].raw.machine
    guest = f", virtual machine (hypervisor {machine.hypervisor})" if machine.hypervisor else ""
    where = f"{machine.cpu_model}, {machine.cpus_online} CPUs{guest}, Linux {machine.kernel}"
    paths = sorted({spell_path(run.raw.topology) for run in runs})
    path = paths[0] if len(paths) == 1 else f"{len(paths)} paths"
    how = f"{duration(runs)} per run, {repeats(rows)}; medians of valid runs with 95 % intervals"
    return f"{where}; {path}; {how}."


def duration(runs: Sequence[Whole]) -> str:
    """How long a run was: as asked for, or the median of what a fixed count took."""
    asked = {run.raw.asked.duration_s for run in runs}
    if len(asked) == 1 and None not in asked:
        return f"{asked.pop():g} s"
    middle = median(run.raw.run.measured_s for run in runs)
    return f"{float(f'{middle:.3g}'):g} s (median)"


def repeats(rows: Sequence[Row]) -> str:
    """How many runs stand behind a point."""
    counts = sorted({row.valid + row.invalid for row in rows})
    return counted(counts[0], "repeat") if len(counts) == 1 else f"{counts[0]} to {counts[-1]} repeats"
