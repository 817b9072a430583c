"""A run on a time line, as Chrome's trace events, which Perfetto and chrome://tracing read.

https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU: `X` is a stretch of time,
`C` a counter, `M` a name. Times are microseconds from the first segment on.
"""

import json
from typing import Any

from copyscope.record.segments import Record

PROCESS = 1


def write(record: Record) -> bytes:
    """Segments with their bytes and calls, the goodput of each, and completions at its end."""
    segments = record["run"]["segments"]
    zero = segments[0]["begin_ns"] if segments else 0
    sides = [side for side in ("sender", "receiver", "target") if segments and side in segments[0]]
    events = [_named("process_name", 0, record["run"]["id"]), _named("thread_name", 1, "segments")]
    events += [_named("thread_name", 2 + at, side) for at, side in enumerate(sides)]
    for one in segments:
        begin, length = (one["begin_ns"] - zero) / 1000, (one["end_ns"] - one["begin_ns"]) / 1000
        span = {"ph": "X", "pid": PROCESS, "ts": begin, "dur": length}
        seconds = length / 1e6 or 1.0
        events.append({**span, "name": one["arm"], "tid": 1, "args": {"block": one["block"]}})
        for at, side in enumerate(sides):
            moved = {key: value for key, value in one[side].items() if isinstance(value, (int, float))}
            events.append({**span, "name": f"{side}: {one['arm']}", "tid": 2 + at, "args": moved})
            counted = {"Gb/s": moved["bytes"] * 8 / 1e9 / seconds}
            events.append(_counter(f"{side} goodput", begin, counted))
        done = (one.get("sender") or {}).get("zerocopy") or {}
        if done:
            told = {key: done[key] for key in ("completions", "copied", "notifications")}
            events.append(_counter("completions", begin + length, told))
    made = {
        "traceEvents": events,
        "displayTimeUnit": "ms",
        "otherData": {"verdict": record["verdict"]["sentence"]},
    }
    return (json.dumps(made) + "\n").encode()


def _named(what: str, thread: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "pid": PROCESS, "tid": thread, "name": what, "args": {"name": name}}


def _counter(name: str, at_us: float, values: dict[str, float]) -> dict[str, Any]:
    return {"ph": "C", "pid": PROCESS, "name": name, "ts": at_us, "args": values}
