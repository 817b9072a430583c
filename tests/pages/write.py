# SPDX-License-Identifier: GPL-2.0-only
"""Write the pages, and the parts of pages, that are generated from the code or from a record (`make pages`).

tests/pure/test_made_pages.py fails if one of them is stale.
"""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import command_line_page
import outputs
import record_page
from copyscope.record import store
from copyscope.report.path_drawing import draw

DOCS = Path(__file__).resolve().parents[2] / "docs"
REFERENCE = DOCS / "reference"


def with_outputs(page: Path, unchanged: str = "") -> bytes:
    return outputs.page_with_outputs(page, unchanged).encode()


# Page -> the function that returns its content.
PAGES: dict[Path, Callable[[], bytes]] = {
    REFERENCE / "record.md": lambda: record_page.page().encode(),
    REFERENCE / "record.schema.json": lambda: store.serialise(record_page.schema()),
    REFERENCE / "command-line.md": lambda: command_line_page.page().encode(),
    DOCS / "path.svg": lambda: draw(outputs.run_in(DOCS / "path.json.gz")).encode(),
    **{page: partial(with_outputs, page) for page in outputs.PAGES},
}


if __name__ == "__main__":
    for path, make in PAGES.items():
        path.write_bytes(make())
