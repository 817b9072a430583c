"""Every test has a time limit: what hangs is a failure that says where."""

import subprocess
import sys
from pathlib import Path

import pytest
from copyscope import paths

HANGS = """
import time

def test_that_hangs():
    time.sleep(30)

def test_after_it():
    pass
"""


def test_a_test_that_hangs_fails_with_its_stack_and_the_next_one_runs(tmp_path: Path) -> None:
    (tmp_path / "test_hanging.py").write_text(HANGS, encoding="utf-8")
    argv = [sys.executable, "-P", "-B", "-m", "pytest", "-p", "no:cacheprovider", "-q"]
    argv += [f"--rootdir={paths.ROOT}", f"--config-file={paths.ROOT / 'pyproject.toml'}", "--timeout=0.2"]
    done = subprocess.run([*argv, str(tmp_path)], capture_output=True, text=True, check=False, timeout=25)
    assert done.returncode == 1
    assert "1 failed, 1 passed" in done.stdout
    assert "time.sleep(30)" in done.stdout and "Timeout" in done.stdout


def test_no_test_is_without_a_limit(request: pytest.FixtureRequest) -> None:
    assert float(request.config.getini("timeout")) > 0
    assert request.config.getini("timeout_method") == "signal"
