"""The exact and the sampled tier of one run side by side."""

from typing import Any

from rich.text import Text

from copyscope import units
from copyscope.ledger.compare_tiers import compare_tiers, coverage, inside_calls, seen_beside, why_not
from copyscope.record.check import typed
from copyscope.render.layout import Table, heading, wrap


def tier_lines(record: dict[str, Any], width: int) -> list[Text]:
    """One line per side, context and account; or why there is nothing to compare."""
    lines = heading(
        "TIERS",
        "share of the side's kernel time; exact, sampled: functions segments; ledger: sampled without hooks",
        width,
    )
    raw = typed(record)
    absent = why_not(raw)
    if absent:
        return lines + wrap(f"n/a: {absent}", width, indent=2)
    rows = compare_tiers(raw)
    titles = ("exact", "sampled", "95 % interval", "agree", "ledger", "exact / ledger")
    table = Table(("in", "side", "where"), *titles, words=("agree",))
    for row in rows:
        tier = "sampled" if row["beside_share"] is None else "beside"
        low, high = (f"{row[f'{tier}_{end}'] * 100:.1f}" for end in ("low", "high"))
        table.add(
            *(row["name"], row["side"], row["context"]),
            units.format_percent(row["exact_share"]),
            units.format_percent(row[f"{tier}_share"]),
            f"{low} .. {high} %",
            "yes" if row["inside"] else "no",
            units.format_percent(row["sampled_share"]),
            "-" if row["ratio"] is None else f"{row['ratio']:.2f}",
        )
    lines += table.lines(width)
    agree = sum(row["inside"] for row in rows)
    same = any(row["beside_share"] is not None for row in rows)
    where = "of the same segments" if same else "of the ledger segments (none were taken beside the hooks)"
    text = (
        f"{agree} of {len(rows)} exact shares lie inside the interval of the samples {where}; what else may"
        " differ: docs/dev/notes.md, Two tiers"
    )
    lines += wrap(text, width, indent=2, style="dim")
    for row in seen_beside(raw):
        share = units.format_percent(row["ratio"])
        text = f"{row['side']}: samples times their period are {share} of the exact time of these segments"
        lines += wrap(text, width, indent=2)
    for row in inside_calls(raw):
        if row["ratio"] is not None:
            text = (
                f"{row['side']}: sends, receives and softirqs are {units.format_percent(row['ratio'])} of the"
                f" time in its {row['calls']:,} send and receive calls, by the clock of system calls in the"
                f" same segments; the way in and out is {units.format_ns(row['rest_ns_per_call'])} a call"
            )
            lines += wrap(text, width, indent=2)
    for row in coverage(raw):
        if row["ratio"] is not None and row["high"] is not None:
            share = units.format_percent(row["ratio"])
            text = (
                f"{row['side']}: sends, receives and softirqs are {share} of its time in the kernel"
                f" ({row['low'] * 100:.1f} .. {row['high'] * 100:.1f} %) by its CPU clock, functions segments"
            )
            lines += wrap(text, width, indent=2)
    return lines
