"""A page in headless Chromium: what it says on its console, what axe-core finds, what can be asked of it."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest
from copyscope import paths

HERE = Path(__file__).resolve().parent
# Where `make deps-consumers` puts what is not Debian's.
PLACE = paths.OUTPUT / "tests" / "consumers"
MODULES = PLACE / "node_modules"
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
NODE = shutil.which("node")
TIMEOUT_S = 60


def look(url: str, **asked: Any) -> dict[str, Any]:
    """What look.mjs says; the test is skipped where something of it is missing."""
    for what, there in (("chromium", CHROMIUM), ("node", NODE)):
        if there is None:
            pytest.skip(f"no {what}: sudo tools/deps.sh consumers")
    if not MODULES.is_dir():
        pytest.skip(f"no {MODULES.relative_to(paths.ROOT)}: make deps-consumers")
    # Pictures are kept where somebody wants to look at them.
    if (keep := os.environ.get("COPYSCOPE_PICTURES")) and (name := asked.pop("name", None)):
        asked["picture"] = str(Path(keep) / f"{name}.png")
    asked.pop("name", None)
    with tempfile.TemporaryDirectory(prefix="copyscope-chromium-") as profile:
        done = subprocess.run(
            [str(NODE), str(HERE / "look.mjs"), str(PLACE)],
            input=json.dumps({"url": url, "chromium": CHROMIUM, "profile": profile, **asked}),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found
