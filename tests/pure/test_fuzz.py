# SPDX-License-Identifier: GPL-2.0-only
"""Odd command lines, mutated records and mutated experiments: no traceback, and an end within a time limit.

`make check` tries 500 cases, the same cases each time. `make fuzz` tries 100,000 new cases
(COPYSCOPE_FUZZ=N). Cases that failed before are examples of each test.
"""

import contextlib
import copy
import gzip
import importlib
import io
import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn
from unittest.mock import patch

import pytest
from builders.sweep import SMALL, small, store
from copyscope.base.errors import RecordError, RunError, UsageError
from copyscope.base.spelling import one_line, visible
from copyscope.commands.record_files import load_sweep as load_sweeps
from copyscope.commands.verbs import VERBS
from copyscope.judge import crossover_file
from copyscope.record import store as record
from copyscope.record.store import RECORDS_NAME
from copyscope.report import exports, table_files
from copyscope.report import study_table as table
from copyscope.report.claim_judge import judge_all
from copyscope.run.target import find_cgroup, find_netns, parse_pids
from copyscope.sweep import results
from copyscope.sweep.experiment import combinations, describe
from copyscope.sweep.experiment import load as load_experiment
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec import to_builtins

BY_HAND = int(os.environ.get("COPYSCOPE_FUZZ", "0"))
CASES = BY_HAND or 300
CPU_LIMIT_S = 10.0
LIMIT_S = 60.0  # long enough for a busy machine
STATUSES = {0, 1, 2}


def cases(share: float) -> Callable[[Any], Any]:
    """Return settings for a share of all cases. In `make check` the cases are always the same."""
    return settings(
        max_examples=max(1, int(CASES * share)),
        derandomize=not BY_HAND,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )


WORDS = [
    *("", "-", "--", "---", "0", "-0", "1", "-1", "2", "4096", "64K", "1G", "9" * 30, "9" * 5000, "1e999"),
    *("nan", "inf"),
    *("0x10", "1_000", "٣", "²", "0,1", "0-1", "3-1", "0-99999999999", ",", "1,,2", "0.5", "-0.5", "1e-9"),
    *(" 1 "),
    *("auto", "on", "off", "none", "sampler", "calls,counters", "veth", "loopback", "veth-xdp", "nics:"),
    *("nics:a,b"),
    *("nics:,,", "zerocopy", "one_copy", "null", "stream", "rr", "poll", "read", "page", "thp", "split"),
    *("same", "cubic"),
    *("\x1b[2J", "a\nb", "\udcff", "\u202e", "a" * 300, "a" * 5000, "[red]", "%s%n", "{}", "{0}", "$(id)"),
    *("`id`", "'", '"'),
    *("quick", "published", "fifo", "zero", "deep.json", "good", "empty", "file", "file/x"),
    *("x.toml", "good.toml", "run.json", "one_copy --size 4K"),
    *("fifo.toml", "zero.toml", "90s", "20m", "1.5h", "0s", "9" * 400 + "h", "cycles", "cycles,cycles"),
    *("fentry", "any"),
]  # fmt: skip
HELP = {"-h", "--help", "--help-all", "--version"}
words = st.one_of(st.sampled_from(WORDS), st.text(max_size=12), st.integers().map(str), st.floats().map(str))
# Verbs with parsers of their own. advise is a variant of another verb.
PARSERS = {verb.name: verb.parser for verb in VERBS if verb.variant_of is None}
TOOLS = {name: importlib.import_module(f"copyscope.commands.{name}").main for name in PARSERS}
# Command -> words before and after the odd words, without which the command would not read these.
AROUND: dict[str, tuple[list[str], list[str]]] = {
    "watch": (["--comm=x"], []),
    "show": (["run.json"], []),
    "diff": (["run.json", "good"], []),
    "compare": (["one_copy"], []),
    "fleet": (["hosts"], ["--", "doctor"]),
}


def words_of(tool: str) -> st.SearchStrategy[tuple[str, list[str]]]:
    """Return a hypothesis strategy for command lines of a tool, mostly with its own options."""
    options = [word for action in PARSERS[tool]()._actions for word in action.option_strings]
    option = st.sampled_from([word for word in options if word not in HELP] + ["--no-such", "--pid"])
    argument = st.one_of(
        st.tuples(option, words).map(lambda pair: [f"{pair[0]}={pair[1]}"]),
        st.tuples(option, words).map(list),
        option.map(lambda word: [word]),
        words.map(lambda word: [word]),
    )
    several = st.lists(argument, max_size=3).map(lambda rows: [word for row in rows for word in row])
    before, after = AROUND.get(tool, ([], []))
    return several.map(lambda row: (tool, [*before, *row, *after]))


lines = st.sampled_from(sorted(PARSERS)).flatmap(words_of)


@pytest.fixture(scope="module")
def scratch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield the current directory of these tests, which has files of every kind."""
    directory = tmp_path_factory.mktemp("fuzz")
    store(small(), directory / "good")
    (directory / "good.toml").write_text(EXPERIMENT)
    (directory / "run.json").write_bytes(record.serialise(RECORDS[0]))
    (directory / "hosts").write_text("here\n")
    for name in ("fifo", "fifo.toml"):
        os.mkfifo(directory / name)
    for name in ("zero", "zero.toml"):
        (directory / name).symlink_to("/dev/zero")
    (directory / "deep.json").write_text("[" * 100_000)
    (directory / "file").write_text("")
    for name, value in (("inf", "1e999"), ("nan", "NaN"), ("long", "9" * 400)):
        text = (
            f'{{"kind": "noise", "hostname": "h", "kernel": "6", "blocks": 2, "metrics": {{"x": {value}}}}}'
        )
        (directory / f"{name}.json").write_text(text)
    (directory / "x.toml").write_text("= [[[")
    (directory / "empty").mkdir()
    (directory / "empty" / RECORDS_NAME).write_bytes(b"")
    before, handlers = Path.cwd(), signal.getsignal(signal.SIGTERM)
    os.chdir(directory)
    with contextlib.ExitStack() as cut:
        # Cut off the work that follows the parsing of options.
        cut.enter_context(patch("copyscope.commands.entry.build_if_stale", lambda *_: None))
        cut.enter_context(patch("copyscope.sweep.runner.git_revision", lambda: (None, None)))
        cut.enter_context(patch("copyscope.sweep.results.find", lambda _: []))
        cut.enter_context(
            patch("copyscope.commands.report.make_report", lambda directories, _: load_sweeps(directories))
        )
        cut.enter_context(patch("copyscope.commands.doctor.diagnose", side_effect=RunError("cut off")))
        cut.enter_context(patch("copyscope.commands.drill.run_all", side_effect=RunError("cut off")))
        cut.enter_context(
            patch("copyscope.commands.fleet.ansible.find_ansible", side_effect=RunError("cut off"))
        )
        cut.enter_context(
            patch("copyscope.run.simulate.simulation.simulate", side_effect=RunError("cut off"))
        )
        cut.enter_context(patch("os.geteuid", lambda: 1000))
        yield directory
    os.chdir(before)
    signal.signal(signal.SIGTERM, handlers)


def check_line(line: str) -> None:
    assert len(line) <= 200, line
    assert visible(line) == line, ascii(line)


def run(main: Callable[[list[str]], int], argv: list[str]) -> tuple[int, str]:
    """Run a command within the time limit. Return its exit status and its stderr."""
    errors = io.StringIO()
    with in_time(), contextlib.redirect_stderr(errors), contextlib.redirect_stdout(io.StringIO()):
        status = main(argv)
    return status, errors.getvalue()


def hung(*_: object) -> NoReturn:
    pytest.fail(f"a case still runs after {LIMIT_S:g} s")


@contextlib.contextmanager
def in_time() -> Iterator[None]:
    began, spent = time.monotonic(), time.process_time()
    if BY_HAND:
        # Otherwise pytest uses SIGALRM to limit the whole test.
        signal.signal(signal.SIGALRM, hung)
        signal.alarm(int(LIMIT_S))
    try:
        yield
    finally:
        if BY_HAND:
            signal.alarm(0)
    assert time.process_time() - spent < CPU_LIMIT_S
    assert time.monotonic() - began < LIMIT_S


def is_harmless(argv: list[str]) -> bool:
    """Return True if the arguments name no file outside the current directory."""
    return not any("/" in word.partition("=")[2][:1] or word.startswith("/") or ".." in word for word in argv)


@pytest.mark.usefixtures("scratch")
@cases(0.6)
@example(("run", ["--size=--"]))
@example(("run", ["--sender-cpus", "0-99999999999"]))
@example(("watch", ["--comm", "\udcff"]))
@example(("run", ["--impl=\udcff"]))
@example(("crossover", ["good", "--json=zero"]))
@example(("compare", ["one_copy", "'"]))
@example(("compare", ["one_copy", "--", "--"]))
@example(("diff", ["run.json", "good", "--noise", "inf.json"]))
@given(lines)
def test_odd_command_lines_end_without_a_traceback(line: tuple[str, list[str]]) -> None:
    tool, argv = line
    if not is_harmless(argv) or HELP & set(argv):
        return
    status, errors = run(TOOLS[tool], argv)
    answers = {1, 3} if tool == "diff" else set()
    assert status in STATUSES | answers
    for row in errors.splitlines():
        check_line(row)
    if status == 2:
        assert len(errors.splitlines()) >= 1
    assert status in {0, *answers} or errors


@cases(0.1)
@example("9" * 5000)
@example("a" * 300)
@example("0\x1f")
@given(words)
def test_odd_targets_are_refused_in_one_line(word: str) -> None:
    for find in (parse_pids, find_netns, find_cgroup):
        if "\0" in word:  # an argument cannot contain a NUL byte
            continue
        try:
            find(word)
        except (UsageError, RunError) as error:
            check_line(one_line(f"profile: {error}"))


EXPERIMENT = (
    SMALL.replace("[4096]\nthreads = [1]", '[4096, "64K"]\n[fixed]\nthreads = 1')
    + """\
[[exclude]]
impl = "one_copy"
size = 4096
"""
)
VALUES = [
    *("[]", "{}", "true", "1979-05-27", "nan", "-inf", "1e400", "9" * 30, "9" * 5000, "0x" + "f" * 5000),
    *("-1", "0"),
    *('""', '"--"', '"\\u0000"', '"\\u001b[2J"', '"' + "a" * 5000 + '"', "[[1]]", '["one_copy", 1, {}]'),
    *("[" * 5000),
    *("{a = {b = {c = 1}}}", '"one_copy"', "4096", '["64K", 65536]', "[true, false]"),
    *("[" + "1," * 2000 + "]", "3.5"),
]  # fmt: skip
KEYS = [
    *("name", "question", "expected", "repeats", "duration_s", "seed", "factors", "fixed", "exclude", "impl"),
    *("size", "threads", "fields", "messages", "warmup", "touch", "tso", "out", "no_such", '"\\u001b"'),
    *("sender_cpus", "a" * 500),
]
toml_lines = st.one_of(
    st.tuples(st.sampled_from(KEYS), st.sampled_from(VALUES)).map(" = ".join),
    st.sampled_from([*EXPERIMENT.splitlines(), "[factors]", "[fixed]", "[[exclude]]", "[factors.impl]"]),
    st.text(max_size=20),
)


@st.composite
def tomls(draw: st.DrawFn) -> bytes:
    """Return an experiment with some lines changed, added or left out, and sometimes with random bytes."""
    lines_of_file = EXPERIMENT.splitlines()
    for _ in range(draw(st.integers(0, 4))):
        at = draw(st.integers(0, len(lines_of_file) - 1))
        lines_of_file[at : at + draw(st.integers(0, 1))] = draw(st.lists(toml_lines, max_size=2))
        if not lines_of_file:
            break
    text = "\n".join(lines_of_file).encode(errors="surrogatepass")
    at = draw(st.integers(0, len(text)))
    return text[:at] + draw(st.binary(max_size=3)) + text[at:] if draw(st.integers(0, 5)) == 0 else text


@cases(0.2)
@example(EXPERIMENT.encode())
@given(tomls())
def test_mutated_experiments_are_read_or_refused(
    tmp_path_factory: pytest.TempPathFactory, text: bytes
) -> None:
    file = tmp_path_factory.getbasetemp() / "fuzzed.toml"
    file.write_bytes(text)
    with in_time():
        try:
            experiment = load_experiment(file)
            for point in combinations(experiment)[:100]:
                visible(describe(point)).encode()
        except UsageError as error:
            check_line(one_line(f"sweep: {error}"))


NUMBERS = [0, -1, 1, 2, 10**18, -(10**30), 10**400, 1e308, -0.5, 1e-320, 0.0, 3.7]
TEXTS = ["", "x", "\x1b[2J", "\udcff", "=1+1", "a" * 3000, "zero_copy", "sender", "other", "softirq", "$x$"]
OTHERS: list[Any] = [None, True, False, [], {}, [None], [[]], {"a": 1}, {"": {}}, [{}], [0] * 50]


def resembling(value: Any) -> list[Any]:
    """Return odd values of the same type as a value."""
    if isinstance(value, bool) or value is None:
        return [True, False, None]
    return NUMBERS if isinstance(value, (int, float)) else TEXTS if isinstance(value, str) else OTHERS


# Path in a record (each number selects a key by its share of the keys), odd value, and kind of change.
change = st.tuples(
    st.lists(st.floats(0, 0.999), min_size=2, max_size=6),
    st.integers(0, 99),
    st.sampled_from(["resembling", "resembling", "resembling", "any", "remove"]),
)


def mutate(value: Any, where: list[float], which: int, how: str) -> None:
    """Replace or remove the value at a path of a record."""
    for index, share in enumerate(where):
        keys = sorted(value) if isinstance(value, dict) else list(range(len(value)))
        if not keys:
            return
        key = keys[int(share * len(keys))]
        if index == len(where) - 1 or not isinstance(value[key], (dict, list)):
            if how == "remove":
                del value[key]
            else:
                odd = resembling(value[key]) if how == "resembling" else [*NUMBERS, *TEXTS, *OTHERS]
                value[key] = copy.deepcopy(odd[which % len(odd)])
            return
        value = value[key]


RECORDS = small(repeats=1)


@cases(0.06)
@example(0, [([0.90625, 0.1875], 0, "resembling")])
@example(0, [([0.90625, 0.25], 80, "resembling")])
@example(0, [([0.28125, 0.0, 0.96875], 0, "resembling")])
@example(1, [([0.28125, 0.75, 0.0], 0, "resembling")])
@example(0, [([0.875, 0.75], 1, "resembling")])
@example(0, [([0.75, 0.75], 1, "resembling")])
@example(0, [([0.46875, 0.0], 26, "resembling")])
@given(st.integers(0, 1), st.lists(change, min_size=1, max_size=3))
def test_mutated_records_are_read_without_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, which: int, changes: list[tuple[list[float], int, str]]
) -> None:
    records = copy.deepcopy(RECORDS)
    for mutation in changes:
        mutate(records[which], *mutation)
    directory = tmp_path_factory.getbasetemp() / "mutated"
    directory.mkdir(exist_ok=True)
    lines = []
    for number, mutated in enumerate(records):
        with contextlib.suppress(RecordError):
            (directory / f"{number}.json").write_bytes(record.serialise(mutated))
            lines.append(record.compressed_line(mutated))
    (directory / RECORDS_NAME).write_bytes(b"".join(lines))
    read_all(directory, directory / f"{which}.json")


@cases(0.04)
@given(st.binary(max_size=200), st.integers(0, 1 << 16), st.booleans(), st.integers(0, 200))
def test_damaged_files_are_read_without_a_traceback(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, at: int, packed: bool, cut: int
) -> None:
    directory = tmp_path_factory.getbasetemp() / "damaged"
    directory.mkdir(exist_ok=True)
    content = record.serialise(RECORDS[0])
    content = gzip.compress(content, compresslevel=1) if packed else content
    at %= len(content)
    (directory / "good.json").write_bytes(record.serialise(RECORDS[1]))
    bad = directory / f"bad.json{'.gz' * packed}"
    bad.write_bytes(content[:at] + data + content[at + cut :])
    many = b"".join(map(record.compressed_line, RECORDS))
    (directory / RECORDS_NAME).write_bytes(many[:at] + data + many[at + cut :])
    read_all(directory, bad)


def read_all(directory: Path, odd: Path) -> None:
    """Run all readers on a sweep and on its odd record: commands, tables, claims and crossovers."""
    sweep_directory = str(directory)
    others = [str(path) for path in directory.glob("[0-9g]*.json") if path != odd]
    form = sorted(exports.FORMATS)[odd.stat().st_size % len(exports.FORMATS)] if odd.exists() else "csv"
    for tool, words in (
        ("crossover", [sweep_directory, "--json", "-"]),
        ("show", [str(odd), "-vv", "--explain"]),
        ("show", [str(odd), "--export", form, "--output", str(directory / "exported")]),
        ("show", [str(odd), "--export", "drawing", "--output", str(directory / "drawn")]),
        ("diff", [*others, str(odd), "--across", "impl,size", "-v"]),
    ):
        status, errors = run(TOOLS[tool], words)
        assert status in STATUSES
        for row in errors.splitlines():
            check_line(row)
    with in_time(), contextlib.suppress(UsageError):
        loaded = results.load(directory)
        runs = loaded.records
        rows = table.fill(runs)
        judge_all(runs)
        table_files.as_csv(table_files.results_table(rows, "demo")).decode()
        table_files.as_csv(table_files.ledger_table(rows)).decode()
        json.dumps(to_builtins(crossover_file.build_document(runs, [], [])), allow_nan=False)
