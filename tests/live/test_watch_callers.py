# SPDX-License-Identifier: GPL-2.0-only
"""Callers of copies in user memory, with source lines, compared with the program's own clock."""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from copyscope.base import paths
from profiling import is_root
from programs import SAMPLED, stretched, watch

Record = dict[str, Any]
Callers = dict[tuple[str | None, str | None], float]

PROGRAMS = paths.ROOT / "tests" / "live" / "callers"
SOURCE = paths.ROOT / "tests" / "live" / "copies.c"
SECONDS = stretched(2)
BUILD_S = 120
# Share of the copies that function often() makes in each program below.
OFTEN_SHARE = 0.75
CALLS = (("copy_by_libc", "memcpy(to, from"), ("copy_seldom", "memcpy(from, to"))

pytestmark = [
    pytest.mark.live,
    pytest.mark.all,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
]


def callers_of(*command: str) -> tuple[Callers, int]:
    """Watch a command. Return (caller, source line) -> share of the copies, and the number of samples."""
    record = watch(*SAMPLED, "--whole", "--frequency", "997", "--", *command, check=None)
    for process in record["target"]["pids"]:  # map files that runtimes leave
        Path(f"/tmp/perf-{process['pid']}.map").unlink(missing_ok=True)
    sums: Counter[tuple[str | None, str | None]] = Counter()
    for row in record["user_callers"]:
        source = row["source"] and row["source"].rpartition("/")[2]
        sums[row["caller"] or row["reason"], source] += row["samples"]
    assert sums.total() > 100, record["user_code"]
    return {caller: count / sums.total() for caller, count in sums.items()}, sums.total()


def spread(part: float, samples: int) -> float:
    """Return four standard errors of a share that was sampled `samples` times."""
    return float(4 * (part * (1 - part) / samples) ** 0.5)


def line_of(text: str, words: str) -> int:
    """Return the number of the line that contains `words` (the first is 1)."""
    return next(number for number, line in enumerate(text.splitlines(), 1) if words in line)


def built(*argv: str) -> None:
    """Build a program in the current directory. Skip the test if the compiler fails or is missing."""
    build = subprocess.run(argv, capture_output=True, text=True, timeout=BUILD_S, check=False)
    if build.returncode:
        pytest.skip(f"{argv[-1]}: {build.stderr[-200:]}")


@pytest.mark.parametrize(
    "flags",
    [
        *("-O0 -g", "-O2 -g", "-O2 -g -fno-omit-frame-pointer", "-O2", "-O2 -g -no-pie", "-O2 -g -pie"),
        *("-O2 -g -static", "-O2 -g -static-pie", "-O2 -s"),
    ],
)
def test_copies_of_a_c_program_have_both_callers_and_lines(flags: str, tmp_path: Path) -> None:
    built("cc", *flags.split(), "-o", str(tmp_path / "copies"), str(SOURCE))
    shares, samples = callers_of(str(tmp_path / "copies"), "two", SECONDS, str(tmp_path / "report"))
    truth = json.loads((tmp_path / "report").read_text())
    often = 1 - truth["seldom_ns"] / truth["copy_ns"]
    assert 0.7 < often < 0.8
    text = SOURCE.read_text()
    functions = [(name, line_of(text, call)) for name, call in CALLS]
    if "-s" in flags.split():  # perf names functions of a stripped program by their address
        parts = sorted(
            (part for (name, _), part in shares.items() if name and "copies+0x" in name), reverse=True
        )
    else:
        parts = [shares[name, f"copies.c:{line}" if "-g" in flags else None] for name, line in functions]
    assert parts == pytest.approx([often, 1 - often], abs=spread(often, samples) + 0.01)


@pytest.mark.parametrize("flags", ["-O2 -fomit-frame-pointer", "-O2 -fno-omit-frame-pointer"])
def test_the_caller_is_found_with_and_without_a_frame_pointer(flags: str, tmp_path: Path) -> None:
    """libc's memcpy() has no frame pointer. A copy function of the program may have one."""
    built("cc", *flags.split(), "-o", str(tmp_path / "copies"), str(SOURCE))
    shares, _ = callers_of(str(tmp_path / "copies"), "own", SECONDS, str(tmp_path / "report"))
    assert shares["copy_by_own", None] > 0.98


# Test program of each language: source, build command, run command, and the names of its two functions.
LANGUAGES = {
    "go": ("copies.go", "go build {file}", "./copies", "main.often", "main.seldom"),
    "go stripped": ("copies.go", "go build -ldflags='-s -w' {file}", "./copies", "main.often", "main.seldom"),
    "go stripped PIE": (
        *("copies.go", "go build -ldflags='-s -w' -buildmode=pie {file}", "./copies"),
        *("main.often", "main.seldom"),
    ),
    "rust": ("copies.rs", "rustc -O -g {file}", "./copies", "copies::often", "copies::seldom"),
    "node": ("copies.js", "node -v", "node --perf-basic-prof --no-turbo-inlining {file}", "often", "seldom"),
    "java": (
        "Copies.java",
        "javac -d . {file} && home=$(dirname $(dirname $(readlink -f $(command -v javac)))) && "
        "cc -O2 -Wall -Wextra -Werror -shared -fPIC -I$home/include -I$home/include/linux -o names.so "
        "{agent}",
        "java -agentpath:./names.so -XX:CompileCommand=quiet -XX:CompileCommand=dontinline,Copies::* Copies",
        *("often", "seldom"),
    ),
}


@pytest.mark.parametrize("language", LANGUAGES)
def test_copies_in_other_languages_have_both_callers(
    language: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """often() copies three times as much as seldom()."""
    file, build, run, *names = LANGUAGES[language]
    paths_by_field = {"file": PROGRAMS / file, "agent": PROGRAMS / "java_names.c"}
    monkeypatch.chdir(tmp_path)
    built("sh", "-c", build.format(**paths_by_field))
    shares, samples = callers_of(*run.format(**paths_by_field).split(), SECONDS)
    text, has_lines = (PROGRAMS / file).read_text(), language != "java"
    parts = []
    for name in names:
        line = line_of(text, f"{re.split(r'[:.]', name)[-1]}(")
        parts.append(shares.get((name, f"{file}:{line}" if has_lines else None), 0.0))
    assert parts == pytest.approx([OFTEN_SHARE, 1 - OFTEN_SHARE], abs=spread(OFTEN_SHARE, samples) + 0.03), (
        shares
    )


def test_copies_in_python_are_called_by_its_interpreter() -> None:
    copy = "while time.monotonic() < until: bytes(view)"
    before = "import time; view = memoryview(bytearray(1 << 17)); until = time.monotonic() + "
    shares, _ = callers_of(sys.executable, "-c", f"{before}{SECONDS}\n{copy}")
    assert max(shares, key=shares.__getitem__)[0] == "PyBuffer_ToContiguous"
