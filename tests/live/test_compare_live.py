# SPDX-License-Identifier: GPL-2.0-only
"""copyscope compare on this kernel: two strategies alternate, and the kernel copies one of them late."""

from __future__ import annotations

import json
import subprocess

from copyscope.base import paths
from profiling import SLOW


def test_compare_finds_the_copy_that_only_one_strategy_makes() -> None:
    options = ("--repeat", "2", "--duration", "0.5", "--warmup", "0.1", "--json", "-")
    argv = [str(paths.ROOT / "bin" / "copyscope"), "compare", "one_copy", "zero_copy", *options]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=60 * SLOW)
    assert done.returncode == 0, done.stderr
    (point,) = json.loads(done.stdout)["points"]
    assert {copy["copy"] for copy in point["appeared"]} == {"deferred", "flagged"}
    copied = {row["what"]: row["change"] for row in point["rows"] if row["unit"] == "bytes/B"}
    assert copied == {"all copies": 0.0, "copy_in": -1.0, "copy_out": 0.0, "deferred": 1.0}
