"""Would zero-copy or sendfile help this program here? One honest paragraph, from measured crossovers. Pure but for reading."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_crossovers(path: Path) -> list[dict[str, Any]] | None:
    """The rows of crossover.json; None when there is no such file."""
    try:
        rows: list[dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["crossovers"]
    except OSError:
        return None
    return rows


def advise(record: dict[str, Any], crossovers: list[dict[str, Any]] | None) -> dict[str, Any]:
    return {"text": "cannot tell"}
