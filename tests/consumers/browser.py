# SPDX-License-Identifier: GPL-2.0-only
"""Open a page in headless Chromium, and return its console messages, findings of axe-core, and answers."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from copyscope.base import paths

HERE = Path(__file__).resolve().parent
# Directory in which `make deps-consumers` puts programs that Debian does not have.
PLACE = paths.OUTPUT / "tests" / "consumers"
MODULES = PLACE / "node_modules"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
NODE = shutil.which("node")
TIMEOUT_S = 60
# Width of a screen in pixels, and whether its colour scheme is dark.
SCREENS = [(1280, False), (1280, True), (400, False), (400, True)]
# Returns by how many pixels an element without its own scroll bar exceeds the screen: that part is cut off.
CUT = """
(() => {
  const wide = [document.documentElement.scrollWidth - innerWidth];
  for (const one of document.querySelectorAll('figure, img, svg, p, h1, h2, h3, select, .choice, main > *'))
    if (!one.closest('.wide')) wide.push(Math.round(one.getBoundingClientRect().right - innerWidth));
  return Math.max(...wide);
})()
"""
# True once the first number of the page of `watch --serve` has changed.
CHANGED = """
(globalThis.first ??= document.querySelector('#numbers b').innerText)
    !== document.querySelector('#numbers b').innerText
"""


def look(url: str, **request: Any) -> dict[str, Any]:
    """Run look.mjs, and return its answer. Skip the test if a program is missing."""
    for program, path in (("chromium", CHROMIUM), ("node", NODE)):
        if path is None:
            pytest.skip(f"no {program}: sudo tools/deps.sh consumers")
    if not MODULES.is_dir():
        pytest.skip(f"no {MODULES.relative_to(paths.ROOT)}: make deps-consumers")
    # COPYSCOPE_PICTURES is a directory that keeps pictures of the pages.
    if (keep := os.environ.get("COPYSCOPE_PICTURES")) and (name := request.pop("name", None)):
        request["picture"] = str(Path(keep) / f"{name}.png")
    request.pop("name", None)
    with tempfile.TemporaryDirectory(prefix="copyscope-chromium-") as profile:
        done = subprocess.run(
            [str(NODE), str(HERE / "look.mjs"), str(PLACE)],
            input=json.dumps({"url": url, "chromium": CHROMIUM, "profile": profile, **request}),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer
