"""A fleet that is asked again goes on with hosts without a record; never with answers to something else."""

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from copyscope import paths
from copyscope.commands import fleet as command
from copyscope.fleet import sample

FACTS = '{"kernel": "6.12.1", "arch": "x86_64", "nics": ["mlx5_core"]}'
GOOD = json.dumps({"works": True, "sentence": "", "findings": []})
# Says whom it was asked for; a host whose file of how it ends is there ends like that.
SSH = """\
#!/bin/sh
while [ "$1" != -- ]; do shift; done
echo "$2" >> @PLACE@/asked
if [ -e @PLACE@/ends/$2 ]; then . @PLACE@/ends/$2; fi
echo '@FACTS@'; echo '@GOOD@'
"""
WAYS = {
    "unreachable": "exit 255",
    "failed": f"echo '{FACTS}'; exit 3",
    "timed out": f"echo '{FACTS}'; exec cat > /dev/null",
    "not an answer": f"echo '{FACTS}'; echo '{{'; exit 0",
}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with an ssh that is none."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "ends").mkdir()
    script = SSH.replace("@PLACE@", str(tmp_path)).replace("@FACTS@", FACTS).replace("@GOOD@", GOOD)
    (tmp_path / "bin" / "ssh").write_text(script)
    (tmp_path / "bin" / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("SUDO_UID", raising=False)
    return tmp_path


def run(place: Path, *words: str, hosts: int = 3) -> tuple[int, list[str]]:
    """Exit status, and who was asked."""
    (place / "hosts").write_text("".join(f"h{n}\n" for n in range(hosts)))
    (place / "asked").write_text("")
    options = [str(place / "hosts"), "--out", str(place / "out"), "-q", *words]
    if "--" not in options:
        options += ["--", "doctor"]
    status = command.main(options)
    return status, sorted((place / "asked").read_text().split())


def test_of_five_hundred_hosts_only_those_that_failed_are_asked_again(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """36 of them, 7 in a hundred, in four ways."""
    broken = sorted(f"h{n}" for n in range(500) if n % 57 < 4)
    assert len(broken) == 36
    for name in broken:
        (place / "ends" / name).write_text(list(WAYS.values())[int(name[1:]) % 57])
    status, asked = run(place, "--timeout", "5", "--forks", "40", hosts=500)
    assert (status, len(asked)) == (1, 500)
    table = capsys.readouterr().out
    assert "464 ok" in table
    assert "9 of 500 unreachable" in table and "9 of 500 timed out" in table
    assert len(list((place / "out").rglob("host=*/date=*/*.json"))) == 464
    for name in broken:
        (place / "ends" / name).unlink()
    status, asked = run(place, "--timeout", "5", "--forks", "40", hosts=500)
    assert (status, asked) == (0, broken)
    said = capsys.readouterr()
    assert "500 ok" in said.out and "464 of 500 hosts have answered since" in said.err
    assert len(list((place / "out").rglob("host=*/date=*/*.json"))) == 500
    assert not list((place / "out").rglob("*.part"))


def test_it_goes_on_after_it_was_killed_and_nothing_of_it_is_left(place: Path) -> None:
    """Four answer; one hangs, and holds up those behind it."""
    (place / "ends" / "h4").write_text(f"echo $$ > {place}/pid; {WAYS['timed out']}")
    (place / "hosts").write_text("".join(f"h{n}\n" for n in range(8)))
    words = (str(place / "hosts"), "--out", str(place / "out"), "--forks", "1", "--", "doctor")
    fleet = subprocess.Popen(
        [sys.executable, "-I", str(paths.ROOT / "tools" / "copyscope"), "fleet", *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    pid = wait_until(lambda: (place / "pid").exists() and (place / "pid").read_text().strip())
    fleet.send_signal(signal.SIGKILL)
    fleet.wait(5)
    wait_until(lambda: not Path(f"/proc/{pid}").exists())
    assert not list((place / "out").rglob("*.part"))
    (place / "ends" / "h4").unlink()
    assert run(place, hosts=8) == (0, ["h4", "h5", "h6", "h7"])


def wait_until(look: Callable[[], str | bool]) -> str | bool:
    end = time.monotonic() + 20
    while not (found := look()):
        assert time.monotonic() < end, "it did not come"
        time.sleep(0.02)
    return found


@pytest.mark.parametrize(
    "other",
    [("--", "doctor", "-v"), ("--sudo", "--", "doctor"), ("--tree", "/opt", "--", "doctor")],
    ids=["words", "user", "tree"],
)
def test_other_arguments_begin_anew_and_that_is_said(
    place: Path, capsys: pytest.CaptureFixture[str], other: tuple[str, ...]
) -> None:
    (place / "ends" / "h1").write_text(WAYS["unreachable"])
    assert run(place)[0] == 1
    capsys.readouterr()
    assert run(place, *other)[1] == ["h0", "h1", "h2"]
    assert "none of its answers count here" in capsys.readouterr().err
    # And back: the rows of the first asking do not come back to life.
    assert run(place)[1] == ["h0", "h1", "h2"]


def test_a_fleet_that_has_answered_is_asked_anew_and_again_asks_all(place: Path) -> None:
    assert run(place) == (0, ["h0", "h1", "h2"])
    assert run(place) == (0, ["h0", "h1", "h2"])
    (place / "ends" / "h1").write_text(WAYS["unreachable"])
    assert run(place) == (1, ["h0", "h1", "h2"])
    assert run(place) == (1, ["h1"])
    assert run(place, "--again") == (1, ["h0", "h1", "h2"])


@pytest.mark.parametrize(
    "damage", ["{", '{"began": 1}', '{"began": "x", "row": {"host": "h0"}}', "[" * 99_999]
)
def test_a_row_that_is_none_is_no_answer(place: Path, damage: str) -> None:
    (place / "ends" / "h1").write_text(WAYS["unreachable"])
    assert run(place)[0] == 1
    (place / "out" / "rows" / "h0.json").write_text(damage)
    assert run(place)[1] == ["h0", "h1"]
    (place / "out" / "asked.json").write_text(damage)
    assert run(place)[1] == ["h0", "h1", "h2"]


def test_a_sample_is_drawn_by_its_seed(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first = run(place, "--sample", "5", "--again", hosts=40)[1]
    assert "5 of 40 hosts drawn by seed 1: a share of them is within 41.5 points" in capsys.readouterr().err
    assert len(set(first)) == 5 and run(place, "--sample", "5", "--again", hosts=40)[1] == first
    assert run(place, "--sample", "5", "--seed", "2", "--again", hosts=40)[1] != first
    assert run(place, "--sample", "41", hosts=40) == (2, [])
    assert "between 1 and 40" in capsys.readouterr().err


def test_so_many_of_so_many_give_a_share_within_two_points() -> None:
    """Of 500 and of 10,000 hosts; drawn 300 times, 19 of 20 times it holds, and not with half of them."""
    assert sample.margin(500, 500) == 0.0
    for hosts, count in ((500, 414), (10_000, 1937)):
        assert sample.margin(count, hosts) <= 0.02 < sample.margin(count - 1, hosts)
        held = [within_two_points(hosts, 0.5, count, seed) for seed in range(300)]
        fewer = [within_two_points(hosts, 0.5, count // 2, seed) for seed in range(300)]
        assert 270 <= sum(held) <= 297 and sum(fewer) < 270


def within_two_points(hosts: int, true: float, count: int, seed: int) -> bool:
    copying = round(hosts * true)
    drawn = random.Random(seed).sample(range(hosts), count)
    return abs(sum(host < copying for host in drawn) / count - true) <= 0.02
