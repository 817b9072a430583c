"""A comparison of two sets of runs on a terminal, and as Markdown: only forms of numbers are made here."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from copyscope.escaping import visible
from copyscope.judge.comparison import CHOICE
from copyscope.judge.difference import BETTER, WORSE
from copyscope.show.account_words import called
from copyscope.show.console import print_lines, report_width
from copyscope.show.layout import Table, heading, labelled, without_gap, wrap
from copyscope.units import counted, format_whole_size

Made = Mapping[str, Any]

COLUMNS = ("change", "interval", "verdict")
BEFORE_AFTER = ("before", "after")
# Of all CPU time: smaller rows are shown when they differ, and with -v.
WORTH = 0.05
LEGEND = (
    "change: of goodput and CPU time their own, of copies a share of the payload, of each row of ns/KiB a"
    " share of all CPU time before; the verdict rests on goodput, CPU time"
)


def render(made: Made, *, verbose: bool, console: Console) -> None:
    """Print a table for each setting, and last what stays on a small screen: the verdict."""
    width = report_width(console)
    lines: list[Text] = []
    points = made["points"]
    if made["overall"]:
        lines += heading("ALL SETTINGS", "mean change, each setting once", width)
        table = Table(("what",), *COLUMNS, words=("verdict",))
        for row in made["overall"]:
            what, *_, change, interval, verdict = cells(made, row)
            table.add(what, change, interval, verdict, strong=row["verdict"] != "equivalent")
        lines += table.lines(width)
    for point in points:
        if not verbose and left_out(point, points):
            continue
        lines += heading(word(made, point["verdict"]).upper(), setting_text(made, point), width)
        values = () if verbose else titles(made)[1:3]
        table = Table(("what",), *titles(made), words=("where", "verdict"), optional=values)
        for row in shown_rows(made, point, verbose=verbose):
            table.add(*cells(made, row), strong=row["decides"] and row["verdict"] != "equivalent")
        lines += table.lines(width)
    lines += [Text(), *wrap(legend(made), width, style="dim")]
    for text in notes(made):
        lines += wrap(text, width, indent=2)
    lines += labelled("verdict", made["sentence"], width, style="bold")
    print_lines(without_gap(lines), console)


def markdown(made: Made) -> str:
    """For a pull request: the verdict, and a table for each setting that is not equivalent."""
    lines = [f"**{cell(made['sentence'])}**", ""]
    lines += [f"- {cell(text)}" for text in notes(made)]
    for point in made["points"]:
        if left_out(point, made["points"]):
            continue
        lines += ["", f"#### {cell(setting_text(made, point))}", ""]
        lines += [f"| what | {' | '.join(map(cell, titles(made)))} |", f"|---|---|{'--:|' * 4}---|"]
        for row in shown_rows(made, point, verbose=False):
            lines.append(f"| {' | '.join(cell(one or '') for one in cells(made, row))} |")
    return "\n".join([*lines, "", legend(made), ""])


def legend(made: Made) -> str:
    """What `change` is of, and which rows decide: of two ways to choose between, not how they copy."""
    return LEGEND if chosen(made) else f"{LEGEND}, all copies and sends copied anyway"


def left_out(point: Made, points: Sequence[Made]) -> bool:
    """Of many settings those that are no finding are a number in the verdict."""
    return len(points) > 3 and point["verdict"] in ("equivalent", "inconclusive")


def titles(made: Made) -> tuple[str, ...]:
    """Of the columns; two that took turns have names."""
    return ("where", *made.get("names", BEFORE_AFTER), *COLUMNS)


def cell(text: str) -> str:
    """Foreign text in a table of Markdown."""
    return visible(text).replace("|", "\\|").replace("<", "&lt;")


def notes(made: Made) -> Iterator[str]:
    """What else is to be known before the numbers are believed."""
    noise = made["noise"]
    if noise:
        told = ", ".join(f"{name} {100 * value:.1f} %" for name, value in sorted(noise.items()))
        yield f"noise: two equal runs on this host differ by up to {told}"
    for name, before, after in made["also_differs"]:
        yield f"machine.{name}: {before} before, {after} after"
    if made["pmus"]:
        before, after = map(visible, made["pmus"])
        yield f"cycles, cache misses: not compared: the PMUs of {before} and {after} count different events"
    for where, keys in zip(("before", "after"), made["only_in"], strict=True):
        if keys:
            yield f"only {where}, in no number: {len(keys)} settings"
    if made["enough_runs"]:
        repeat = f"--repeat {made['enough_runs']}" if chosen(made) else f"{made['enough_runs']} runs of each"
        yield f"next: as far as runs lie apart here, {repeat} would find a change of 5 % nine times in ten"
    reasons = dict.fromkeys(
        row["reason"] for point in made["points"] for row in point["rows"] if row["reason"] and row["decides"]
    )
    yield from reasons


def chosen(made: Made) -> bool:
    """Whether these are two ways to choose between, and not one before and after a change."""
    return bool(made["kind"] == "compare")


def word(made: Made, verdict: str) -> str:
    """Of two ways that somebody chooses between, none is a regression of the other."""
    return CHOICE[verdict] if chosen(made) and verdict in (WORSE, BETTER) else verdict


def setting_text(made: Made, point: Made) -> str:
    """What was measured: strategy, size, and in what settings differ; and how often."""
    known, points = point["setting"], made["points"]
    varied = [name for name in known if len({str(one["setting"].get(name)) for one in points}) > 1]
    names = dict.fromkeys((*("impl", "size", "threads", "topology"), *varied))
    if isinstance(known.get("size"), int):
        known = {**known, "size": format_whole_size(known["size"])}
    texts = [f"{name} {known[name]}" for name in names if name in known]
    before, after = point["runs"]
    runs = counted(before, "run")
    runs += " of each" if chosen(made) else f" before, {after} after"
    return ", ".join([*texts, runs])


def shown_rows(made: Made, point: Made, *, verbose: bool) -> Iterator[Made]:
    """Copies that appeared first; then what decides, and the rows of CPU time that are large or differ."""
    for one in () if chosen(made) else point["appeared"]:
        yield {
            **dict.fromkeys(("side", "context", "low", "high")),
            **{"what": f"{_name(one['copy'])} APPEARED", "unit": "share", "base": "payload", "decides": True},
            **{"before": one["before"], "after": one["after"], "change": one["after"] - one["before"]},
            "verdict": "regression",
        }
    whole = next((row["before"] for row in point["rows"] if row["what"] == "CPU time"), None) or 0
    for row in point["rows"]:
        large = row["base"] == "cpu" and max(row["before"], row["after"]) >= WORTH * whole
        if verbose or large or row["decides"] or row["verdict"] not in ("equivalent", "inconclusive"):
            yield row


def cells(made: Made, row: Made) -> list[str | None]:
    """One line of the table."""
    low, high = row["low"], row["high"]
    change = row["change"]
    exact = low is not None and low == high
    return [
        _name(row["what"], row["side"]),
        ", ".join(filter(None, (row["side"], row["context"] if row["context"] != "process" else None))),
        *(_number(row[key], row["unit"]) for key in ("before", "after")),
        None if change is None else f"{100 * change:+.1f} %",
        "exact"
        if exact or "APPEARED" in row["what"]
        else None
        if low is None
        else f"{100 * low:+.1f}..{100 * high:+.1f}",
        word(made, row["verdict"]),
    ]


def _name(what: str, side: str | None = None) -> str:
    """As the screen of a run calls an account or a stage."""
    return "sends copied anyway" if what == "flagged" else called(what, watched=side == "target")


def _number(value: float | None, unit: str) -> str | None:
    if value is None:
        return None
    if unit in ("share", "of sends"):
        return f"{100 * value:.3g} %"
    return f"{value:.3g} {unit}" if value < 1000 else f"{value:,.0f} {unit}"
