"""What became of the zero-copy sends: the lines that a flag alone would hide."""

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from copyscope import units
from copyscope.render.layout import labelled


def zerocopy_lines(record: Mapping[str, Any], width: int, *, verbose: bool) -> list[Text]:
    """Copied or not, why, and what the notifications say; nothing for a strategy without zero-copy."""
    zerocopy = record["zerocopy"]
    if zerocopy is None:
        return []
    text = _finding(zerocopy)
    cause = zerocopy["cause"]
    if cause is not None:
        text += f": {cause['sentence']}"
    lines = labelled("zero-copy", text, width, style="yellow" if cause is not None else "")
    facts = [
        f"all segments: {units.format_count(zerocopy['sends'])} sends",
        f"{units.format_count(zerocopy['notifications'])} notifications",
        f"at most {units.format_count(zerocopy['max_in_flight'])} in flight",
        f"ENOBUFS {units.format_count(zerocopy['enobufs'])}",
    ]
    if zerocopy["sends"] != zerocopy["completions"]:
        facts.append(f"only {units.format_count(zerocopy['completions'])} completed")
    lines += labelled("", ", ".join(facts), width)
    if verbose and zerocopy["bytes_silent"] is not None:
        sent, flagged, silent, uncopied = (
            units.format_bytes(zerocopy[key], exact=True)
            for key in ("bytes_sent", "bytes_copied", "bytes_silent", "bytes_zero_copy")
        )
        text = f"all segments: {sent} sent, {flagged} copied by the flag; "
        text += f"ledger segments: {silent} copied without it, {uncopied} not copied"
        lines += labelled("", text, width)
    return lines


def _finding(zerocopy: Mapping[str, Any]) -> str:
    """The three states apart: copied and said so, copied in silence, not copied as far as can be seen."""
    completed = units.format_count(zerocopy["completions"])
    if zerocopy["copied"]:
        return f"{units.format_count(zerocopy['copied'])} of {completed} sends were copied"
    if zerocopy["bytes_silent"] is None:
        return f"no completion of {completed} sends says copied; silent copies were not looked for"
    if zerocopy["bytes_silent"]:
        return f"the flag says that none of {completed} sends was copied, and it is wrong"
    return f"none of {completed} sends was copied"
