"""What came of each way to send a buffer that was rewritten: each with its evidence, then in short."""

from rich.text import Text

from copyscope import units
from copyscope.drill.copiers import COPYING, Copier
from copyscope.drill.trials import NOBODY_SEEN, Row
from copyscope.grouping import grouped
from copyscope.show.layout import Table, heading, wrap

# In a cell of the summary.
SHORT = {"copied before return": "copied", "in part by reference": "in part"}


def drill_lines(rows: list[Row], kernel: str, width: int) -> list[Text]:
    """Of a kernel: each way on each path, then all of it in short: above that a screen may have scrolled."""
    lines = [Text(f"Linux {kernel}", style="bold"), Text(), *_table(rows, width), Text()]
    note = (
        "By reference: the receiver gets what the program wrote into the buffer after the call. Changed at "
        "once: rewritten while all of it still waited in the sender's socket."
    )
    unknown = {row.copied_by_reason or "" for row in rows if row.result in COPYING and row.copied_by is None}
    for reason in sorted(unknown - {NOBODY_SEEN}):
        note += f" Which function copied is not known: {reason}."
    return [*lines, *wrap(note, width), *_summary(rows, width)]


def _table(rows: list[Row], width: int) -> list[Text]:
    """One row for each way and path; a path that refuses all of them for one reason has one."""
    said = [("path", "method", "the buffer, rewritten after the call")]
    for path, ways in grouped(rows, lambda row: row.path).items():
        alike = len(ways) > 1 and ways[0].result == "refused" and len({say(row) for row in ways}) == 1
        said += [(path, "all", say(ways[0]))] if alike else [(path, row.way, say(row)) for row in ways]
    paths, names = (max(len(row[column]) for row in said) for column in (0, 1))
    lines = [
        line
        for path, way, text in said
        for line in wrap(f"{path:<{paths}}  {way:<{names}}  {text}", width, indent=paths + names + 4)
    ]
    lines[0].stylize("dim")
    return lines


def _summary(rows: list[Row], width: int) -> list[Text]:
    """Ways with the same results share a row, and the results of one way that differ a cell."""
    results = {way: _results(of_way) for way, of_way in grouped(rows, lambda row: _short(row.way)).items()}
    paths = list(dict.fromkeys(row.path for row in rows))
    table = Table(("method",), *paths, words=paths)
    for cells, ways in grouped(results, lambda way: tuple(results[way].get(path) for path in paths)).items():
        table.add(", ".join(ways), *cells)
    return heading("WHICH METHOD AVOIDS THE COPY", "by reference: it does", width) + table.lines(width)


def _short(way: str) -> str:
    """`sendfile, memfd` is sendfile."""
    return way.partition(",")[0]


def _results(rows: list[Row]) -> dict[str, str]:
    """Path -> what came of one way there."""
    return {
        path: " or ".join(dict.fromkeys(SHORT.get(row.result, row.result) for row in there))
        for path, there in grouped(rows, lambda row: row.path).items()
    }


def say(row: Row) -> str:
    """One row in words."""
    if row.reason is not None:
        return f"{row.result}: {row.reason}"
    told = "" if row.notified is None else f"; its notification says {row.notified}"
    by = "" if row.copied_by is None else f", by {copier(row.copied_by)}"
    if row.result == "copied before return":
        return row.result + by + told
    if row.result == "late copy":
        at_once = units.format_count(row.changed_at_once_bytes)
        later = f"after {row.arrived_after_us} us: none"
        return f"late copy{by}: rewritten at once: {at_once} bytes changed; {later}{told}"
    changed, whole = units.format_count(row.changed_bytes), units.format_count(row.bytes)
    return f"{row.result}: {changed} of {whole} bytes changed{told}"


def copier(found: Copier) -> str:
    """A function, and how often it was seen."""
    seen = "samples" if found.seen_by == "samples" else "calls"
    return f"{found.function} in {found.within} ({units.format_count(found.count)} {seen})"
