"""speedscope's own format: https://github.com/jlfwong/speedscope/blob/main/src/lib/file-format-spec.ts"""

import json
from typing import Any

from copyscope import VERSION
from copyscope.record.segments import Record
from copyscope.render.exports.costs import costs


def write(record: Record) -> bytes:
    """One sampled profile for each side, in nanoseconds of CPU time."""
    places: dict[str, int] = {}
    sides: dict[str, dict[str, Any]] = {}
    for cost in costs(record):
        if not cost.ns:
            continue
        one = sides.setdefault(cost.side, {"samples": [], "weights": []})
        one["samples"].append([places.setdefault(name, len(places)) for name in (cost.where, *cost.frames)])
        one["weights"].append(cost.ns)
    profiles = [
        {"type": "sampled", "name": side, "unit": "nanoseconds", "startValue": 0}
        | {"endValue": sum(one["weights"]), **one}
        for side, one in sides.items()
    ]
    made = {
        "$schema": "https://www.speedscope.app/file-format-schema.json",
        "name": record["run"]["id"],
        "exporter": f"copyscope {VERSION}",
        "activeProfileIndex": 0,
        "shared": {"frames": [{"name": name} for name in places]},
        "profiles": profiles,
    }
    return (json.dumps(made, ensure_ascii=True) + "\n").encode()
