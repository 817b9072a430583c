"""A pytest plugin: one JSON line per test as it ends, so that a guest that hangs has told the rest."""

import json
import os
from pathlib import Path

import pytest

OUT = Path(os.environ["COPYSCOPE_TESTS_JSONL"])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    # A test that is skipped or breaks in its set-up or tear-down has no (good) call.
    if report.when != "call" and report.passed:
        return
    said = ""
    if isinstance(report.longrepr, tuple):
        said = report.longrepr[2].removeprefix("Skipped: ")
    elif report.longrepr is not None:
        crash = getattr(report.longrepr, "reprcrash", None)
        said = crash.message if crash is not None else str(report.longrepr)
    row = {
        "id": report.nodeid,
        "outcome": report.outcome,
        "seconds": round(report.duration, 1),
        "said": said,
    }
    with OUT.open("a") as file:
        file.write(json.dumps(row) + "\n")
