# SPDX-License-Identifier: GPL-2.0-only
"""A real CPU counts walks.c as the model does. Skipped where perf cannot count the events."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from copyscope.base import paths

pytestmark = [pytest.mark.all, pytest.mark.timeout(120)]

SOURCES = ("tests/simulator/walks.c", "src/guest/channel.c")
# Positions of two cases in walks.c.
WORDS_128K, LINES_256K = 1, 3
EVENTS = ("instructions:u", "L1-dcache-load-misses:u")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    executable: Path = tmp_path_factory.mktemp("walks") / "walks"
    options = ["-O2", "-std=gnu11", "-D_GNU_SOURCE", "-static"]
    subprocess.run(["cc", *options, "-o", executable, *SOURCES], cwd=paths.ROOT, check=True, timeout=60)
    return executable


def counted(program: Path, case: int, rounds: int) -> dict[str, int]:
    """Count one case with perf stat. Skip the test, with perf's reason, if an event cannot be counted."""
    perf = shutil.which("perf")
    if perf is None:
        pytest.skip("not compared with hardware: perf is not installed")
    argv = [perf, "stat", "-x,", "-e", ",".join(EVENTS), str(program), str(case), str(rounds)]
    output = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False).stderr
    counts = {}
    for event in EVENTS:
        line = next((line for line in output.splitlines() if f",{event}," in line), output)
        number = re.match(r"\d+", line)
        if number is None:
            pytest.skip(f"not compared with hardware: {event}: {line.split(',')[0].strip() or 'not counted'}")
        counts[event] = int(number[0])
    return counts


def of_rounds(program: Path, case: int, rounds: int) -> dict[str, int]:
    """Return the counts of the rounds alone, without the start of the program."""
    start_only, with_rounds = counted(program, case, 0), counted(program, case, rounds)
    return {event: with_rounds[event] - start_only[event] for event in EVENTS}


def test_a_pmu_counts_instructions_and_misses_as_the_model_does(program: Path) -> None:
    """Instructions are equal. The model's misses are an upper bound, because prefetchers avoid some."""
    words = of_rounds(program, WORDS_128K, 400)
    # A word takes a load and the loop around it: a whole number of instructions.
    per_word = words["instructions:u"] / (400 * 16384)
    assert 2 < per_word == pytest.approx(round(per_word), rel=0.01)
    assert words["L1-dcache-load-misses:u"] <= 400 * 2048 * 1.05
    lines = of_rounds(program, LINES_256K, 400)
    assert 400 * 2048 * 0.3 < lines["L1-dcache-load-misses:u"] < 400 * 2048 * 1.2
