"""What a real CPU counts of the walks of walks.c, beside what the model says. Where no PMU is, it says so."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from copyscope import paths

pytestmark = [pytest.mark.all, pytest.mark.timeout(120)]

SOURCES = ("tests/simulator/walks.c", "src/guest/channel.c")
# Their places in walks.c, and lines read from beyond the L1D in four rounds.
WORDS_128K, LINES_256K = 1, 3
EVENTS = ("instructions:u", "L1-dcache-load-misses:u")


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = tmp_path_factory.mktemp("walks") / "walks"
    options = ["-O2", "-std=gnu11", "-D_GNU_SOURCE", "-static"]
    subprocess.run(["cc", *options, "-o", made, *SOURCES], cwd=paths.ROOT, check=True, timeout=60)
    return made


def counted(program: Path, case: int, rounds: int) -> dict[str, int]:
    """Skips the test, with perf's own word for it, where the machine does not count one of the events."""
    perf = shutil.which("perf")
    if perf is None:
        pytest.skip("not compared with hardware: perf is not installed")
    argv = [perf, "stat", "-x,", "-e", ",".join(EVENTS), str(program), str(case), str(rounds)]
    said = subprocess.run(argv, capture_output=True, text=True, timeout=30, check=False).stderr
    found = {}
    for event in EVENTS:
        line = next((line for line in said.splitlines() if f",{event}," in line), said)
        number = re.match(r"\d+", line)
        if number is None:
            pytest.skip(f"not compared with hardware: {event}: {line.split(',')[0].strip() or 'not counted'}")
        found[event] = int(number[0])
    return found


def of_rounds(program: Path, case: int, rounds: int) -> dict[str, int]:
    none, all_of_it = counted(program, case, 0), counted(program, case, rounds)
    return {event: all_of_it[event] - none[event] for event in EVENTS}


def test_a_pmu_counts_what_the_model_does(program: Path) -> None:
    """Instructions are the same; of misses the model is the upper bound, since prefetchers hide some."""
    words = of_rounds(program, WORDS_128K, 400)
    # The load of each word, and the loop around it: a whole number.
    per_word = words["instructions:u"] / (400 * 16384)
    assert 2 < per_word == pytest.approx(round(per_word), rel=0.01)
    assert words["L1-dcache-load-misses:u"] <= 400 * 2048 * 1.05
    lines = of_rounds(program, LINES_256K, 400)
    assert 400 * 2048 * 0.3 < lines["L1-dcache-load-misses:u"] < 400 * 2048 * 1.2
