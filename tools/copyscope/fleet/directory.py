"""Where the measurements of a fleet are kept: DIR/host=HOST/date=DAY/TIME.json (Hive's layout)."""

import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from copyscope.files import saving
from copyscope.fleet.answers import Row
from copyscope.record import store


def keep(out: Path, row: Row) -> Row:
    """What a host measured, as it was validated; it is held no longer. Raises OSError."""
    if row.document is None:
        return row
    now = datetime.now(UTC)
    directory = out / f"host={row.host}" / f"date={now:%Y-%m-%d}"
    saving.make_directory(directory)
    if "schema" in row.document:
        data = store.serialise(row.document)
    else:
        data = (json.dumps(row.document, indent=1) + "\n").encode()
    saving.save(directory / f"{now:%H%M%S}.json", data)
    return replace(row, document=None)
