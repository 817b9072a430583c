"""What a verb says first: one screen of any size from 80 by 24 on, in which all shares are of one whole.

COPYSCOPE_GOLDEN=1 writes the golden screens anew; read the difference before it is kept.
"""

import fcntl
import io
import os
import re
import struct
import subprocess
import termios
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import raw_record
from builders.watched import watched_record
from copyscope import paths
from copyscope.ledger.derive import derive
from copyscope.record import store
from copyscope.render import first_screen
from copyscope.render.explain import IN_A_LINE
from copyscope.taxonomy.taxonomy import ACCOUNTS
from rich.console import Console
from test_render import RECORDS, Record

GOLDEN = Path(__file__).parent / "data" / "first_screen"
ALL: dict[str, Callable[[], Record]] = {**RECORDS, "watched": lambda: derive(watched_record())}


# Of these there is a golden screen; that of a PMU and of a receiver that drops is one_copy's.
GOLDEN_80X24 = sorted(set(ALL) - {"one_copy_pmu", "trunc"})
LARGER = ("zero_copy_xdp", "invalid", "watched")


def screen(record: Record, width: int = 80, height: int = 24, *, explain: bool = False) -> str:
    console = Console(file=io.StringIO(), width=width, height=height, color_system=None, force_terminal=True)
    first_screen.render(record, console, explain=explain)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def fits(record: Record, width: int, height: int, golden: str | None, *, explain: bool = False) -> str:
    """The screen, which leaves a line for the prompt, and is the golden one where there is one."""
    said = screen(record, width, height, explain=explain)
    lines = said.splitlines()
    assert len(lines) < height and max(map(len, lines)) <= width
    if golden is not None:
        path = GOLDEN / f"{golden}.txt"
        if os.environ.get("COPYSCOPE_GOLDEN"):
            path.write_text(said)
        assert said == path.read_text(), path.name
    return said


@pytest.mark.parametrize("name", ALL)
def test_it_is_one_screen_and_the_golden_one(name: str) -> None:
    """The last that is said is the verdict's."""
    record = ALL[name]()
    verdict = record["verdict"]
    last = verdict["sentence"] if verdict["valid"] else verdict["next"] or verdict["reasons"][0]
    assert max(map(len, screen(record, 60).splitlines())) <= 60
    for width, height, golden in (
        (80, 24, name if name in GOLDEN_80X24 else "one_copy"),
        (100, 30, f"{name}-100x30"),
        (160, 50, f"{name}-160x50"),
    ):
        said = fits(record, width, height, golden if width == 80 or name in LARGER else None)
        assert last.split()[-1] == said.split()[-1]


@pytest.mark.parametrize("name", ALL)
def test_what_each_row_means_is_on_one_screen_too(name: str) -> None:
    record = ALL[name]()
    for width, height in ((80, 24), (100, 30), (160, 50)):
        golden = f"{name}-explained-{width}x{height}" if name in LARGER and width < 160 else None
        fits(record, width, height, golden, explain=True)


def test_every_row_has_its_meaning_in_one_line() -> None:
    assert set(IN_A_LINE) == {*first_screen.COPIES, *first_screen.WORK} == {*ACCOUNTS, *first_screen.WORK}
    assert max(map(len, IN_A_LINE.values())) <= 78


@pytest.mark.parametrize(
    ("state", "low", "high", "said"),
    [
        ({"sentence": None}, 0.96, 0.99, "overhead 3 % (1 to 4); machine quiet; nothing lost"),
        (
            {"sentence": "machine busy: ...", "others_share": 0.84, "steal_share": 0.02},
            *(0.7, 1.9, "overhead unclear; busy: others took 86 %; nothing lost"),
        ),
        (
            {"sentence": "unsteady: ...", "others_share": 0.01, "steal_share": None, "spread_share": 0.25},
            *(0.97, 0.98, "overhead 3 % (2 to 3); goodput varied 25 %; nothing lost"),
        ),
    ],
)
def test_trust_is_one_line_on_a_noisy_machine_too(
    state: dict[str, Any], low: float, high: float, said: str
) -> None:
    record = ALL["one_copy"]()
    record["machine_state"] = state
    record["overhead"] |= {"ratio": 0.97, "low": low, "high": high}
    assert f"\nvalid, 16 checks hold; {said}\nmore: " in screen(record)


@pytest.mark.parametrize("account", ACCOUNTS)
def test_every_copy_has_a_row(account: str) -> None:
    """Also the cipher of kTLS, which no golden record has."""
    record = derive(raw_record("one_copy"))
    row = next(row for row in record["ledger"] if row["account"] == "copy_in" and row["cpu_ns"])
    record["ledger"] = [{**row, "account": account}]
    first = screen(record).partition("ns/KiB    share  cores\n")[2].splitlines()[0]
    assert re.match(r"[a-z][a-z', ]+ sender +172\.6 ", first), first


def test_a_pipe_gets_the_smallest_screen() -> None:
    console = Console(file=io.StringIO(), width=100, color_system=None)
    first_screen.render(ALL["one_copy"](), console)
    assert isinstance(console.file, io.StringIO)
    assert console.file.getvalue() == screen(ALL["one_copy"]())


@pytest.mark.parametrize("name", ["one_copy", "two_copy", "zero_copy", "watched"])
def test_what_it_shows_adds_up_to_all_of_it(name: str) -> None:
    shares = [
        float(found) for found in re.findall(r" ([0-9.]+) % ", screen(ALL[name]()).partition("PATH")[2])
    ]
    *rows, whole = shares[: shares.index(100.0) + 1]
    assert 3 <= len(rows) <= 8 and whole == 100.0
    assert sum(rows) == pytest.approx(100.0, abs=0.05 * len(rows))


def test_work_on_the_time_of_others_is_beside_the_whole_and_has_no_share_of_it() -> None:
    record = ALL["watched"]()
    row = next(row for row in record["stages"] if row["cpu_ns"])
    before = [line for line in screen(record).splitlines() if line.startswith("all ")]
    record["stages"].append({**row, "side": "other", "cpu_ns": 6e9})
    lines = screen(record).splitlines()
    # Ten times the 312.5 ns/KiB of its own CPU time.
    (beside,) = [line for line in lines if line.startswith("on the time of others")]
    assert beside.split()[-2:] == ["3,125.0", "3.81"] and "%" not in beside
    assert [line.split() for line in lines if line.startswith("all ")] == [before[0].split()]


def test_a_core_is_a_second_of_cpu_time_in_a_second() -> None:
    """10 Gb/s are 1,220,703 KiB a second: at 901.7 ns each 1.10 s of CPU time."""
    (row,) = [line for line in screen(ALL["zero_copy"]()).splitlines() if line.startswith("all ")]
    assert row.split() == ["all", "901.7", "100.0", "%", "1.10"]


def test_a_terminal_of_24_lines_that_knows_nothing(tmp_path: Path) -> None:
    """Through the command: no escape sequence, and -v is all tables."""
    store.write(derive(raw_record("zero_copy")), tmp_path / "run.json")
    front: list[str | Path] = [paths.ROOT / "bin" / "copyscope", "show", tmp_path / "run.json"]
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    environment = {"PATH": os.environ["PATH"], "TERM": "dumb", "LC_ALL": "C.UTF-8"}
    subprocess.run(front, stdout=theirs, stdin=theirs, env=environment, check=True, timeout=30)
    os.close(theirs)
    said = b""
    while True:
        try:
            said += os.read(ours, 65536)
        except OSError:  # EIO: nobody writes any more
            break
    os.close(ours)
    assert b"\x1b" not in said
    assert said.decode().replace("\r\n", "\n") == (GOLDEN / "zero_copy.txt").read_text()
    whole = subprocess.run(
        [*front, "-v"], capture_output=True, text=True, env=environment, check=True, timeout=30
    )
    assert whole.stdout == (GOLDEN.parent / "render" / "zero_copy.txt").read_text()
