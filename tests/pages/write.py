"""Writes pages, or parts of them, made of the code or of a record: `make pages`.

tests/pure/test_made_pages.py compares them.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import command_line_page
import outputs
import record_page
from copyscope.exports.path_drawing import draw
from copyscope.record import store
from copyscope.record.check import typed_whole

DOCS = Path(__file__).resolve().parents[2] / "docs"
REFERENCE = DOCS / "reference"


def with_outputs(page: Path, but: str = "") -> bytes:
    return outputs.written(page, but).encode()


# Each page, and what makes its text.
PAGES: dict[Path, Callable[[], bytes]] = {
    REFERENCE / "record.md": lambda: record_page.page().encode(),
    REFERENCE / "record.schema.json": lambda: store.serialise(record_page.schema()),
    REFERENCE / "command-line.md": lambda: command_line_page.page().encode(),
    DOCS / "path.svg": lambda: draw(typed_whole(store.read(DOCS / "path.json.gz"))).encode(),
    **{page: partial(with_outputs, page) for page in outputs.PAGES},
}


if __name__ == "__main__":
    for path, make in PAGES.items():
        path.write_bytes(make())
