"""Writes pages, or parts of them, made of the code or of a record: `make pages`.

tests/pure/test_made_pages.py compares them.
"""

from pathlib import Path

import command_line_page
import outputs
import record_page
from copyscope.record import store
from copyscope.render.path_drawing import draw

DOCS = Path(__file__).resolve().parents[2] / "docs"
REFERENCE = DOCS / "reference"


def pages() -> dict[Path, bytes]:
    """Each page with its text."""
    return {
        REFERENCE / "record.md": record_page.page().encode(),
        REFERENCE / "record.schema.json": store.serialise(record_page.schema()),
        REFERENCE / "command-line.md": command_line_page.page().encode(),
        DOCS / "path.svg": draw(store.read(DOCS / "path.json.gz")).encode(),
        **{page: outputs.written(page).encode() for page in outputs.PAGES},
    }


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_bytes(text)
