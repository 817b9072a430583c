"""What tests/conftest.py says of a test that failed once, and of one that failed beside other programs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parents[1]


# Tests of their own, with our conftest as a plugin.
THEIRS = """
import time, conftest, pytest
runs = []

def test_second_time():
    runs.append(1)
    assert len(runs) == 2, "not yet"

def test_never():
    assert runs == "never"

@pytest.mark.quiet
@pytest.mark.parametrize("most", [1000, -1000])
def test_slow(most, monkeypatch):
    monkeypatch.setattr(conftest, "OTHERS_MAX", most)
    time.sleep(0.1)
    assert False, "it took too long"
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> str:
    place = tmp_path_factory.mktemp("theirs")
    (place / "test_it.py").write_text(THEIRS)
    argv = [sys.executable, "-P", "-B", "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "conftest"]
    argv += ["-p", "pytest_rerunfailures", "--reruns", "1"]
    argv += ["-c", str(TESTS.parent / "pyproject.toml"), "--rootdir", str(place), str(place)]
    env = {**os.environ, "PYTHONPATH": str(TESTS)}
    done = subprocess.run(argv, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith("2 failed, 1 passed, 1 skipped, 3 rerun in "), done.stdout
    return done.stdout


def test_what_passes_the_second_time_is_named_and_what_fails_twice_has_failed(said: str) -> None:
    flaky = [line for line in said.splitlines() if line.startswith("FLAKY ")]
    assert flaky == ["FLAKY test_it.py::test_second_time: AssertionError: not yet"]
    assert said.count('>       assert runs == "never"') == 2, said


def test_what_compares_times_is_skipped_with_the_load_only_beside_others(said: str) -> None:
    assert re.search(r"^FAILED .*test_it\.py::test_slow\[1000\]", said, re.MULTILINE)
    assert re.search(
        r"test_slow\[-1000\]: other programs took -?\d+% of a processor meanwhile: it took", said
    )
