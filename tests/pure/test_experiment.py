# SPDX-License-Identifier: GPL-2.0-only
"""Experiments: the committed ones are consistent, mistakes name file and key, the order is seeded."""

import re
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from copyscope.base import paths
from copyscope.base.errors import UsageError
from copyscope.plan.schedule import parse_time_s
from copyscope.sweep.experiment import (
    Experiment,
    arguments,
    combinations,
    describe,
    differing_setting,
    expand,
    identify,
    load,
    run_s,
)

EXPERIMENTS = paths.ROOT / "experiments"
FILES = sorted(EXPERIMENTS.glob("*.toml"))
README = (EXPERIMENTS / "README.md").read_text()

GOOD = """\
# Is it?

name = "sizes"
question = "Which is faster?"
expected = "2m"
repeats = 3
duration_s = 1.5
seed = 42

[factors]
impl = ["two_copy", "one_copy"]
size = [
    512,
    "64K",  # the default
]
tso = ["on", "off"]

[fixed]
fields = 8
touch = true

[[exclude]]
size = 512
tso = "off"
"""


def expected_s(experiment: Experiment) -> float:
    """Return the duration that the experiment file states, in s."""
    return parse_time_s(experiment.expected, "expected")


@pytest.fixture
def write(tmp_path: Path) -> Callable[[str], Path]:
    def _write(text: str) -> Path:
        path = tmp_path / "sizes.toml"
        path.write_text(text)
        return path

    return _write


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
class TestEveryFile:
    def test_is_complete_and_keeps_its_promise(self, path: Path) -> None:
        experiment = load(path)
        assert experiment.name == path.stem
        runs = expand(experiment)
        assert len({run.run_id for run in runs}) == len(runs)
        planned_s = len(runs) * run_s(experiment)
        assert planned_s * 0.8 < expected_s(experiment) < planned_s * 1.25, f"takes about {planned_s:.0f} s"

    def test_opens_with_its_question_and_its_time(self, path: Path) -> None:
        comment = path.read_text().split("\n\n")[0].splitlines()
        assert all(line.startswith("# ") and len(line) <= 140 for line in comment)
        assert "?" in comment[0] and comment[-1].startswith("# Expected time: ")
        stated_time = re.search(r"(\d+) (minute|second)s?", comment[-1])
        assert stated_time and parse_time_s(f"{stated_time[1]}{stated_time[2][0]}", "comment") == expected_s(
            load(path)
        )

    def test_every_point_becomes_options(self, path: Path) -> None:
        experiment = load(path)
        for factors in combinations(experiment):
            args = arguments(experiment, factors)
            for key, value in {**experiment.fixed, **factors}.items():
                assert str(getattr(args, key)) == str(value)

    def test_is_in_the_list(self, path: Path) -> None:
        experiment = load(path)
        row = next(line for line in README.splitlines() if line.startswith(f"| `{experiment.name}` |"))
        cells = [cell.strip() for cell in row.strip("|").split("|")]
        assert cells[1:4] == [
            experiment.question,
            str(len(combinations(experiment))),
            str(experiment.repeats),
        ]
        assert parse_time_s(cells[4].replace("min", "m"), "README") == expected_s(experiment)


def test_published_covers_every_strategy_size_and_number_of_threads() -> None:
    """`published` has the union of the strategies and sizes of the four replicas."""
    experiment = load(EXPERIMENTS / "published.toml")
    replicas = [load(EXPERIMENTS / f"{name}.toml") for name in REPLICAS]
    impls, sizes = (
        {value for replica in replicas for value in replica.factors[key]} for key in ("impl", "size")
    )
    points = {(p["impl"], p["size"], p["threads"]) for p in combinations(experiment)}
    assert points == {(impl, size, threads) for impl in impls for size in sizes for threads in (1, 2, 4, 8)}
    assert len(points) == 4 * 9 * 4 and min(sizes) == 64 and max(sizes) == 1 << 20


# Settings of each published report, as the report states them.
REPLICAS: dict[str, dict[str, Any]] = {
    "mt25082": {"impl": "per_field", "size": (64, 256, 1024, 4096), "topology": "veth"},
    "mt25077": {"impl": "two_copy", "size": (1024, 4096, 65536, 1 << 20), "topology": "veth", "gso": "off"},
    "mt25190": {"impl": "two_copy", "size": (512, 1024, 2048, 4096), "topology": "loopback", "align": "page"},
    "mt25067": {"impl": "two_copy", "size": (256, 1024, 4096, 16384), "messages": 5000},
}


@pytest.mark.parametrize("name", REPLICAS)
def test_replicas_have_the_settings_of_the_reports(name: str) -> None:
    experiment = load(EXPERIMENTS / f"{name}.toml")
    expected = dict(REPLICAS[name])
    assert experiment.factors["impl"] == (expected.pop("impl"), "one_copy", "zero_copy")
    assert experiment.factors["size"] == expected.pop("size")
    assert experiment.factors["threads"] == (1, 2, 4, 8)
    assert expected.items() <= experiment.fixed.items()
    assert experiment.fixed["fields"] == 8


def test_quick_is_quick() -> None:
    experiment = load(EXPERIMENTS / "quick.toml")
    assert len(experiment.factors["size"]) == len(experiment.factors["threads"]) == 2
    assert len(expand(experiment)) * run_s(experiment) < 90
    crossover = load(EXPERIMENTS / "crossover.toml")
    assert len(expand(crossover)) * run_s(crossover) < 120


def test_a_valid_file(write: Callable[[str], Path]) -> None:
    experiment = load(write(GOOD))
    assert experiment.factors == {
        "impl": ("two_copy", "one_copy"),
        "size": (512, 65536),
        "tso": ("on", "off"),
    }
    assert experiment.fixed == {"fields": 8, "touch": True}
    assert len(combinations(experiment)) == 6
    assert {"impl": "one_copy", "size": 512, "tso": "off"} not in combinations(experiment)
    args = arguments(experiment, {"impl": "one_copy", "size": 65536, "tso": "off"})
    assert (args.impl, args.size, args.tso, args.touch, args.duration) == (
        "one_copy",
        "65536",
        "off",
        True,
        1.5,
    )
    assert args.receiver == "read"  # the default of the option


def test_a_path_between_hosts(write: Callable[[str], Path]) -> None:
    """An address is valid only together with hosts. Between two other hosts this machine needs no root."""
    text = GOOD.replace('tso = ["on", "off"]', 'mode = ["stream"]').replace('tso = "off"', "")
    hosts = 'receiver_at = "web2"\nsender_address = "198.51.100.7"'
    experiment = load(write(text.replace("touch = true", hosts)))
    assert not experiment.elsewhere
    for sender, elsewhere in (("here", False), ("web1", True)):
        both = f'{hosts}\nsender_at = "{sender}"'
        assert load(write(text.replace("touch = true", both))).elsewhere is elsewhere
    assert arguments(experiment, {"impl": "one_copy", "size": 512}).sender_address == "198.51.100.7"


# Replaced text, replacement, key in the message, reason in the message.
MISTAKES = [
    ("seed = 42", "seed = 42\nsede = 1", None, "unknown field `sede`; did you mean seed?"),
    ("seed = 42", "", None, "missing required field `seed`"),
    ("seed = 42", 'seed = "42"', "seed", "Expected `int`, got `str`"),
    ("seed = 42", "seed = true", "seed", "Expected `int`, got `bool`"),
    ("seed = 42", "seed = -1", "seed", "Expected `int` >= 0"),
    ("seed = 42", "seed = 4 2", None, "not TOML"),
    ("tso = [", "tso = [\n[", None, "not TOML"),
    ("repeats = 3", "repeats = 0", "repeats", "Expected `int` >= 1"),
    ("duration_s = 1.5", "duration_s = 0.1", "duration_s", "Expected `float` >= 0.5"),
    ("duration_s = 1.5", "", "duration_s", "missing"),
    ("fields = 8", "messages = 23", "duration_s", "has no duration"),
    ('"2m"', '"soon"', "expected", "soon: not a time; write a time"),
    ('name = "sizes"', 'name = "My sizes"', "name", "expected small letters"),
    ('["two_copy", "one_copy"]', "[]", "factors.impl", "without values"),
    ('["two_copy", "one_copy"]', '"one_copy"', "factors.impl", "expected a list"),
    ('"one_copy"]', '"zerocopy"]', "factors.impl", "no such strategy; did you mean zero_copy?"),
    ('"one_copy"]', "3]", "factors.impl", "3: expected a text"),
    ('"64K",', '"64Q",', "factors.size", '"64Q": expected bytes'),
    ('"64K",', "true,", "factors.size", "true: expected bytes"),
    ('"64K",', '"512",', "factors.size", "named twice"),
    ('"64K",', "7,", "factors.size", "7: smaller than 8 fields"),
    ("fields = 8", "fields = 513", "factors.size", "512: smaller than 513 fields"),
    ('["on", "off"]', '["on", "maybe"]', "factors.tso", "maybe: unknown value"),
    ('["on", "off"]', "[true]", "factors.tso", '"on" or "off"'),
    ("fields = 8", "fiels = 8", "fixed.fiels", "did you mean fields?"),
    ("fields = 8", 'fields = "8"', "fixed.fields", "expected a whole number"),
    ("fields = 8", "size = 64", "fixed.size", "is a factor, too"),
    ("fields = 8", 'topology = "vet"', "fixed.topology", "unknown topology"),
    ("fields = 8", 'instruments = "all"', "fixed.instruments", "unknown instrument"),
    ("fields = 8", "warmup = -1", "fixed.warmup", "out of range; choose 0 to 60 s"),
    ("fields = 8", "duration = 3", "fixed.duration", "belongs at the top"),
    ("fields = 8", 'out = "x"', "fixed.out", "not a setting of an experiment"),
    ("touch = true", 'touch = "yes"', "fixed.touch", "expected true or false"),
    ("size = 512\ntso", "siz = 512\ntso", "exclude.0.siz", "not a factor of this experiment"),
    ("size = 512\ntso", "size = 513\ntso", "exclude.0.size", "513: not a value of this factor"),
    ("size = 512\ntso", "size = []\ntso", "exclude.0.size", "no value"),
    ('size = 512\ntso = "off"', 'tso = ["on", "off"]', "exclude.0", "excludes the last points"),
    ('"off"\n', '"off"\n\n[[exclude]]\ntso = "off"\nsize = 512\n', "exclude.1", "excludes no further point"),
]


@pytest.mark.parametrize("mistake", MISTAKES, ids=[mistake[1][:30] for mistake in MISTAKES])
def test_a_mistake_is_named_with_file_and_key(
    mistake: tuple[str, str, str | None, str], write: Callable[[str], Path]
) -> None:
    old, new, key, reason = mistake
    assert old in GOOD
    at = GOOD.rindex(old)
    path = write(GOOD[:at] + new + GOOD[at + len(old) :])
    with pytest.raises(UsageError) as caught:
        load(path)
    text = str(caught.value)
    assert text.startswith(f"{path}: {key}: " if key else str(path))
    assert reason in text and "\n" not in text


def test_a_file_that_is_missing_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"gone\.toml: No such file"):
        load(tmp_path / "gone.toml")
    (tmp_path / "raw.toml").write_bytes(b"\xff")
    with pytest.raises(UsageError, match="not UTF-8 at byte 0"):
        load(tmp_path / "raw.toml")


def test_order_is_blocked_and_seeded(write: Callable[[str], Path]) -> None:
    experiment = load(write(GOOD))
    runs = expand(experiment)
    assert [run.order for run in runs] == list(range(18))
    blocks = [[identify(run.factors) for run in block] for _, block in groupby(runs, lambda run: run.repeat)]
    everything = {identify(factors) for factors in combinations(experiment)}
    assert [set(block) for block in blocks] == [everything] * 3 and [len(block) for block in blocks] == [
        6
    ] * 3
    assert len({tuple(block) for block in blocks}) > 1  # each block is shuffled by itself
    assert expand(load(write(GOOD))) == runs
    other = expand(load(write(GOOD.replace("seed = 42", "seed = 43"))))
    assert other != runs and {run.run_id for run in other} == {run.run_id for run in runs}


def test_more_repeats_change_no_run(write: Callable[[str], Path]) -> None:
    runs = expand(load(write(GOOD)))
    more = expand(load(write(GOOD.replace("repeats = 3", "repeats = 5"))))
    assert more[: len(runs)] == runs


@pytest.mark.parametrize(
    ("old", "new", "key"),
    [
        ("# Is it?", "# It is", None),
        ('"Which is faster?"', '"Is it?"', None),
        ("repeats = 3", "repeats = 9", None),
        ('"64K"', "65536", None),
        ('"64K"', '"64kb"', None),
        ('"64K"', '"0.0625M"', None),
        ('"64K"', '"32K"', "factors.size"),
        ('["two_copy", "one_copy"]', '["one_copy", "two_copy"]', "factors.impl"),
        ("fields = 8", "fields = 9", "fixed.fields"),
        ("fields = 8", "", "fixed.fields"),
        ("1.5", "1.6", "duration_s"),
        ("seed = 42", "seed = 41", "seed"),
        ('"sizes"', '"shapes"', "name"),
        ('size = 512\ntso = "off"', 'tso = "off"', "exclude"),
    ],
)
def test_settings_that_make_another_experiment(
    old: str, new: str, key: str | None, write: Callable[[str], Path]
) -> None:
    first = load(write(GOOD))
    assert old in GOOD
    assert differing_setting(first, load(write(GOOD.replace(old, new)))) == key


def test_describe() -> None:
    assert describe({"impl": "one_copy", "size": 65536, "touch": False}) == "impl=one_copy size=64K touch=no"
    assert describe({"size": 1 << 20, "threads": 1024}) == "size=1M threads=1024"
    assert describe({"size": 1000}) == "size=1000"


@pytest.mark.parametrize(("text", "seconds"), [("90s", 90), ("20m", 1200), ("1.5h", 5400), ("2 m", 120)])
def test_valid_times(text: str, seconds: float) -> None:
    assert parse_time_s(text, "--budget") == seconds


@pytest.mark.parametrize("text", ["", "20", "0m", "-1s", "1d", "m"])
def test_invalid_times(text: str) -> None:
    with pytest.raises(UsageError, match=r"--budget .*: not a time"):
        parse_time_s(text, "--budget")
