"""What a release said in a root or a guest, against what must be true of it."""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

# sender.py's
SENT = {"calls": 2000, "bytes": 2000 * 65536}

Hooks = dict[str, tuple[str, str | None]]


def measured(said: Path, hooks: Hooks) -> Iterable[str]:
    """The run and the watch, against what must be true of them."""
    run, watch = document(said / "run.json"), document(said / "watch.json")
    if run is None or watch is None:
        yield "a record is missing"
        return
    if hooks_of(run) != hooks:
        yield f"other hooks than this tree's: {sorted(hooks_of(run).items() ^ hooks.items())}"
    for name, record in (("run", run), ("watch", watch)):
        if not record["verdict"]["valid"]:
            yield f"{name}: invalid: {'; '.join(record['verdict']['reasons'])}"
    sent = [row for row in watch["volume"] if row["direction"] == "send"]
    if [{key: row[key] for key in SENT} for row in sent] != [SENT]:
        yield f"watch: {SENT['calls']} sends of {SENT['bytes']} bytes are {sent}"


def hooks_of(record: Mapping[str, Any]) -> Hooks:
    return {one["id"]: (one["state"], one["how"]) for one in record["hooks"]}


def facts(path: Path) -> dict[str, str]:
    lines = path.read_text().splitlines() if path.exists() else []
    return dict(line.split("=", 1) for line in lines if "=" in line)


def document(path: Path) -> dict[str, Any] | None:
    with suppress(OSError, ValueError):
        found: dict[str, Any] = json.loads(path.read_text())
        return found
    return None
