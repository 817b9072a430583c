# SPDX-License-Identifier: GPL-2.0-only
"""Check the output of a release in a root or a guest."""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

# Sends of sender.py.
SENT = {"calls": 2000, "bytes": 2000 * 65536}

Hooks = dict[str, tuple[str, str | None]]


def measured(directory: Path, hooks: Hooks) -> Iterable[str]:
    """Check the records of `run` and `watch` in a directory. Yield the problems."""
    run, watch = document(directory / "run.json"), document(directory / "watch.json")
    if run is None or watch is None:
        yield "a record is missing"
        return
    if hooks_of(run) != hooks:
        yield f"other hooks than this tree's: {sorted(hooks_of(run).items() ^ hooks.items())}"
    for name, record in (("run", run), ("watch", watch)):
        if not record["verdict"]["valid"]:
            yield f"{name}: invalid: {'; '.join(record['verdict']['reasons'])}"
    send_rows = [row for row in watch["volume"] if row["direction"] == "send"]
    if [{key: row[key] for key in SENT} for row in send_rows] != [SENT]:
        yield f"watch: {SENT['calls']} sends of {SENT['bytes']} bytes are {send_rows}"


def hooks_of(record: Mapping[str, Any]) -> Hooks:
    """Return hook -> (state, way of attaching)."""
    return {hook["id"]: (hook["state"], hook["how"]) for hook in record["hooks"]}


def facts(path: Path) -> dict[str, str]:
    """Read a file of lines KEY=VALUE."""
    lines = path.read_text().splitlines() if path.exists() else []
    return dict(line.split("=", 1) for line in lines if "=" in line)


def document(path: Path) -> dict[str, Any] | None:
    """Read a JSON object, or return None."""
    with suppress(OSError, ValueError):
        content: dict[str, Any] = json.loads(path.read_text())
        return content
    return None
