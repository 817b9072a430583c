"""On which CPUs a run was, in a line."""

from rich.text import Text

from copyscope.record.segments import Record
from copyscope.render.layout import wrap


def processor_lines(record: Record, width: int) -> list[Text]:
    """Where both sides ran; a caution is yellow."""
    placed = record.get("placement")
    if placed is None:
        return []
    if placed["caution"]:
        return wrap(f"caution: {placed['sentence']}", width, indent=2, style="yellow")
    return wrap(placed["sentence"], width, indent=2)
