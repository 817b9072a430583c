"""Below the exact table: whose memory the deferred copies copied, who ran them, and when the notice came."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from copyscope import units
from copyscope.render.layout import labelled


def life_lines(record: Mapping[str, Any], width: int) -> list[Text]:
    """Nothing where nothing was sent by reference, or without the hooks."""
    life = record["zerocopy_life"]
    if life is None:
        return []
    lines: list[Text] = []
    for owned in life["owners"]:
        owner = (
            "memory of unknown owner" if owned["owner_side"] is None else f"{_of(owned['owner_side'])} memory"
        )
        runs = ", ".join(f"{units.format_count(run['calls'])} {_runner(run)}" for run in owned["runs"])
        text = f"{units.format_count(owned['calls'])} copies of {owner}, {units.format_bytes(owned['bytes'])}"
        lines += labelled("deferred", f"{text}; run by: {runs}", width)
    for notified in life["notified"]:
        text = f"{_of(notified['side'])} sends: notified p50 {_when(notified['p50_ns'])}, "
        text += f"p99 {_when(notified['p99_ns'])}"
        count = units.format_count(notified["count"])
        before = units.format_count(notified["before_return"])
        text += f" ({count} notifications, {before} of them before the send returned)"
        lines += labelled("completion", text, width)
    return lines


def _of(side: str) -> str:
    return "other processes'" if side == "other" else f"the {side}'s"


def _runner(run: Mapping[str, Any]) -> str:
    if run["context"] == "softirq":
        return "softirq of others" if run["side"] == "other" else f"softirq on the {run['side']}"
    task = "others" if run["side"] == "other" else f"the {run['side']}"
    return task if run["context"] == "process" else f"{task} (context unknown)"


def _when(ns: int | None) -> str:
    """0 is the send's return: the notification was there by then."""
    if ns is None:
        return units.NOT_AVAILABLE
    return "by its return" if ns == 0 else f"at most {units.format_ns(ns)} after its return"
