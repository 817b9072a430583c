"""What came of each way to send a buffer that was rewritten, as a table."""

from rich.text import Text

from copyscope import units
from copyscope.drill.copiers import COPYING, Copier
from copyscope.drill.trials import NOBODY_SEEN, Row
from copyscope.show.layout import Table, wrap


def drill_lines(rows: list[Row], kernel: str, width: int) -> list[Text]:
    """The table of a kernel: one row for each way and path."""
    table = Table(
        ("path", "way"),
        "the buffer, rewritten after the call",
        words=("the buffer, rewritten after the call",),
    )
    for row in rows:
        table.add(row.path, row.way, say(row))
    note = (
        "By reference: the receiver gets what the program wrote into the buffer after the call. Changed at "
        "once: rewritten while all of it still waited in the sender's socket."
    )
    unknown = {row.copied_by_reason or "" for row in rows if row.result in COPYING and row.copied_by is None}
    for reason in sorted(unknown - {NOBODY_SEEN}):
        note += f" Which function copied is not known: {reason}."
    return [Text(f"Linux {kernel}", style="bold"), Text(), *table.lines(width), Text(), *wrap(note, width)]


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
