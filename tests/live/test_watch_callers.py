"""Who calls the copies that a program makes in its own memory, and from which line: by its own clock."""

import json
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from copyscope import paths
from profiling import is_root
from programs import SAMPLED, stretched, watch

Record = dict[str, Any]
Callers = dict[tuple[str | None, str | None], float]

PROGRAMS = paths.ROOT / "tests" / "live" / "callers"
SOURCE = paths.ROOT / "tests" / "live" / "copies.c"
SECONDS = stretched(2)
BUILD_S = 120
# Of what the programs below copy, that from the first place.
OFTEN = 0.75
CALLS = (("copy_by_libc", "memcpy(to, from"), ("copy_seldom", "memcpy(from, to"))

pytestmark = [
    pytest.mark.live,
    pytest.mark.all,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
]


def callers_of(*command: str) -> tuple[Callers, int]:
    """(caller, line of its source) -> its part of the copies, of so many samples."""
    record = watch(*SAMPLED, "--whole", "--frequency", "997", "--", *command, check=None)
    for process in record["target"]["pids"]:  # what runtimes leave behind
        Path(f"/tmp/perf-{process['pid']}.map").unlink(missing_ok=True)
    sums: Counter[tuple[str | None, str | None]] = Counter()
    for row in record["user_callers"]:
        source = row["source"] and row["source"].rpartition("/")[2]
        sums[row["caller"] or row["reason"], source] += row["samples"]
    assert sums.total() > 100, record["user_code"]
    return {who: count / sums.total() for who, count in sums.items()}, sums.total()


def spread(part: float, samples: int) -> float:
    """Four times that of so many samples of two things."""
    return float(4 * (part * (1 - part) / samples) ** 0.5)


def line_of(text: str, mark: str) -> int:
    """The line that holds it, the first is 1."""
    return next(number for number, line in enumerate(text.splitlines(), 1) if mark in line)


def built(*argv: str) -> None:
    """Here; skips the test where that fails, as the compiler is missing."""
    made = subprocess.run(argv, capture_output=True, text=True, timeout=BUILD_S, check=False)
    if made.returncode:
        pytest.skip(f"{argv[-1]}: {made.stderr[-200:]}")


@pytest.mark.parametrize(
    "flags",
    [
        *("-O0 -g", "-O2 -g", "-O2 -g -fno-omit-frame-pointer", "-O2", "-O2 -g -no-pie", "-O2 -g -pie"),
        *("-O2 -g -static", "-O2 -g -static-pie", "-O2 -s"),
    ],
)
def test_two_callers_in_c(flags: str, tmp_path: Path) -> None:
    built("cc", *flags.split(), "-o", str(tmp_path / "copies"), str(SOURCE))
    found, samples = callers_of(str(tmp_path / "copies"), "two", SECONDS, str(tmp_path / "report"))
    said = json.loads((tmp_path / "report").read_text())
    often = 1 - said["seldom_ns"] / said["copy_ns"]
    assert 0.7 < often < 0.8
    text = SOURCE.read_text()
    places = [(name, line_of(text, call)) for name, call in CALLS]
    if "-s" in flags.split():  # as perf writes what has no name
        parts = sorted(
            (part for (name, _), part in found.items() if name and "copies+0x" in name), reverse=True
        )
    else:
        parts = [found[name, f"copies.c:{line}" if "-g" in flags else None] for name, line in places]
    assert parts == pytest.approx([often, 1 - often], abs=spread(often, samples) + 0.01)


@pytest.mark.parametrize("flags", ["-O2 -fomit-frame-pointer", "-O2 -fno-omit-frame-pointer"])
def test_a_copy_with_and_without_a_frame(flags: str, tmp_path: Path) -> None:
    """memcpy() of libc has none; one of the program's own may have one, and pushes that first."""
    built("cc", *flags.split(), "-o", str(tmp_path / "copies"), str(SOURCE))
    found, _ = callers_of(str(tmp_path / "copies"), "own", SECONDS, str(tmp_path / "report"))
    assert found["copy_by_own", None] > 0.98


# How it is made and run, and the names of its two functions.
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
def test_two_callers_in_other_languages(
    language: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """often() copies three times as much as seldom()."""
    file, build, run, *names = LANGUAGES[language]
    places = {"file": PROGRAMS / file, "agent": PROGRAMS / "java_names.c"}
    monkeypatch.chdir(tmp_path)
    built("sh", "-c", build.format(**places))
    found, samples = callers_of(*run.format(**places).split(), SECONDS)
    text, has_lines = (PROGRAMS / file).read_text(), language != "java"
    parts = []
    for name in names:
        line = line_of(text, f"{re.split(r'[:.]', name)[-1]}(")
        parts.append(found.get((name, f"{file}:{line}" if has_lines else None), 0.0))
    assert parts == pytest.approx([OFTEN, 1 - OFTEN], abs=spread(OFTEN, samples) + 0.03), found


def test_python_is_called_by_its_interpreter() -> None:
    copy = "while time.monotonic() < until: bytes(view)"
    before = "import time; view = memoryview(bytearray(1 << 17)); until = time.monotonic() + "
    found, _ = callers_of(sys.executable, "-c", f"{before}{SECONDS}\n{copy}")
    assert max(found, key=found.__getitem__)[0] == "PyBuffer_ToContiguous"
