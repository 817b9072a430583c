"""README.md beside the records: what somebody who browses the repository sees."""

from collections.abc import Sequence

from copyscope.report.plots.catalogue import MODELLED, PLOTS, Plot

# Of a measured sweep; a simulated one has three in all.
SHOWN = ("goodput", "cycles", "ledger_stack")


def write(name: str, question: str | None, verdict: str | None, caption: str, drawn: Sequence[str]) -> bytes:
    """`drawn`: names of the plots that there are, in their order. UTF-8."""
    lines = [f"# {name}", ""]
    lines += [f"*{question}*", ""] if question else []
    lines += [verdict, ""] if verdict else []
    for plot in _chosen(drawn):
        lines += [f"![{plot.alt}](plots/{plot.name}.png)", ""]
    tables = "`modelled.csv` has" if MODELLED[0].name in drawn else "`results.csv` and `ledger.csv` have"
    lines += [
        caption,
        "",
        f"{tables} the numbers, `records.jsonl.gz` every run. `copyscope report` on this directory makes this"
        " page, the tables and `report.html`, which has the verdict, all plots, answers and methods.",
    ]
    return "\n".join([*lines, ""]).encode()


def _chosen(drawn: Sequence[str]) -> list[Plot]:
    return [
        plot
        for plot in (*PLOTS, *MODELLED)
        if plot.name in drawn and (plot.name in SHOWN or plot in MODELLED)
    ]
