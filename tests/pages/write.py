"""Writes the pages that are made of the code: `make pages`. tests/pure/test_made_pages.py compares them."""

from pathlib import Path

import command_line_page
import record_page
from copyscope.record import store

REFERENCE = Path(__file__).resolve().parents[2] / "docs" / "reference"


def pages() -> dict[Path, bytes]:
    """Each page with its text."""
    return {
        REFERENCE / "record.md": record_page.page().encode(),
        REFERENCE / "record.schema.json": store.serialise(record_page.schema()),
        REFERENCE / "command-line.md": command_line_page.page().encode(),
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_bytes(text)
