# SPDX-License-Identifier: GPL-2.0-only
"""tests/conftest.py skips failed tests with the mark `quiet` on a busy machine only."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]


# Tests that run in a process of their own, with tests/conftest.py as a plugin.
INNER_TESTS = """
import time, conftest, pytest

@pytest.mark.quiet
@pytest.mark.parametrize("most", [1000, -1000])
def test_slow(most, monkeypatch):
    monkeypatch.setattr(conftest, "OTHERS_MAX", most)
    time.sleep(0.1)
    assert False, "it took too long"
"""


@pytest.fixture(scope="module")
def pytest_output(tmp_path_factory: pytest.TempPathFactory) -> str:
    directory = tmp_path_factory.mktemp("theirs")
    (directory / "test_it.py").write_text(INNER_TESTS)
    argv = [sys.executable, "-P", "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "conftest"]
    argv += ["-c", str(TESTS.parent / "pyproject.toml"), "--rootdir", str(directory), str(directory)]
    env = {**os.environ, "PYTHONPATH": str(TESTS)}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith("1 failed, 1 skipped in "), done.stdout
    return done.stdout


def test_quiet_test_is_skipped_only_while_other_programs_use_the_machine(pytest_output: str) -> None:
    assert re.search(r"^FAILED .*test_it\.py::test_slow\[1000\]", pytest_output, re.MULTILINE)
    assert re.search(
        r"test_slow\[-1000\]: other programs took -?\d+% of a processor meanwhile: it took", pytest_output
    )
