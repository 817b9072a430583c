# SPDX-License-Identifier: GPL-2.0-only
"""A pytest plugin that writes a JSON line after each test, for guests that hang later."""

import json
import os
from pathlib import Path

import pytest

OUT = Path(os.environ["COPYSCOPE_TESTS_JSONL"])


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Append the result of a test. `said` is the reason of a skip, or the message of a failure."""
    # The phase `call` of a test is missing if its set-up skips it or fails. So failed phases count, too.
    if report.when != "call" and report.passed:
        return
    message = ""
    if isinstance(report.longrepr, tuple):
        message = report.longrepr[2].removeprefix("Skipped: ")
    elif report.longrepr is not None:
        crash = getattr(report.longrepr, "reprcrash", None)
        message = crash.message if crash is not None else str(report.longrepr)
    row = {
        "id": report.nodeid,
        "outcome": report.outcome,
        "seconds": round(report.duration, 1),
        "said": message,
    }
    with OUT.open("a") as file:
        file.write(json.dumps(row) + "\n")
