"""How long one message took, as the traffic program timed it: quantiles, never a mean alone."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.text import Text

from copyscope import units
from copyscope.render.layout import labelled

# histogram of the sender -> what it is called here; only a round trip is a latency
TIMES = {"round_trip_ns": "latency", "send_time_ns": "send time", "completion_time_ns": "completion"}
MEANINGS = {
    "round_trip_ns": "request sent to response received",
    "send_time_ns": "handing one message to the kernel",
    "completion_time_ns": "send return to notification read",
}
QUANTILES = (("p50", "p50"), ("p90", "p90"), ("p99", "p99"), ("p999", "p99.9"), ("max", "max"))


def message_time_lines(record: Mapping[str, Any], width: int) -> list[Text]:
    """One line per histogram that has entries, over all segments and the warm-up."""
    lines: list[Text] = []
    histograms = record["traffic"]["sender"]["histograms"]
    for key, label in TIMES.items():
        histogram = histograms.get(key)
        if histogram and histogram["count"]:
            values = ", ".join(f"{name} {units.format_ns(histogram[q])}" for q, name in QUANTILES)
            count = units.format_count(histogram["count"])
            lines += labelled(label, f"{values} ({count} timed: {MEANINGS[key]})", width)
    return lines
