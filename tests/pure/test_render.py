# SPDX-License-Identifier: GPL-2.0-only
"""The report of -v: golden texts, widths, and output that must never appear.

COPYSCOPE_GOLDEN=1 records the golden files anew; read the difference before you commit it.
"""

import copy
import difflib
import io
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from builders import raw_record
from builders.documents import derive, typed_whole
from builders.encrypted import with_tls
from builders.watched import watched_record
from copyscope.base import spelling
from copyscope.record.sections import Histogram
from copyscope.show import evidence, terminal, watch
from copyscope.show.first_screen import render_summary
from copyscope.show.layout import REPORT_WIDTH, TextTable, make_console, wrap
from copyscope.show.progress import StepProgress
from rich.console import Console
from test_ledger import with_foreign_copies

GOLDEN = Path(__file__).parent / "data" / "render"
RENEW = bool(os.environ.get("COPYSCOPE_GOLDEN"))

Record = dict[str, Any]


def broken_record() -> Record:
    """Return a run in which the kernel counted a byte and a call less than the program, and lost a stack."""
    raw = raw_record("one_copy")
    raw["bytes"][0]["bytes"] -= 1
    raw["bytes"][0]["calls"] -= 1
    raw["loss"] = {"samples_stack_map_full": {"count": 1, "of": 2_000, "share": 0.0005}}
    return derive(raw)


def unknown_record() -> Record:
    """Return a run on a kernel without hooks, sampler, counters and segments without instruments."""
    raw = raw_record("zero_copy", fixed_messages=23)
    for hook in raw["hooks"]:
        hook |= {"state": "refused", "how": None, "reason": "tp_btf: EPERM at load: run as root"}
    for event in raw["sampler"]["events"]:
        event |= {"status": "unsupported", "reason": "perf_event_open: EACCES: perf_event_paranoid is 3"}
    raw |= {"samples": [], "bytes": [], "calls": [], "counters": {"sender": {}, "receiver": {}}}
    return derive(raw)


RECORDS: dict[str, Callable[[], Record]] = {
    "one_copy": lambda: derive(raw_record("one_copy")),
    "one_copy_pmu": lambda: derive(raw_record("one_copy", pmu=True)),
    "two_copy": lambda: derive(raw_record("two_copy")),
    "zero_copy": lambda: derive(raw_record("zero_copy")),
    "zero_copy_xdp": lambda: derive(raw_record("zero_copy", kind="veth-xdp")),
    "null": lambda: derive(raw_record("null")),
    "trunc": lambda: derive(raw_record("one_copy", receiver="trunc")),
    "invalid": broken_record,
    "unknown": unknown_record,
}
DIFFERS_FROM = {
    **dict.fromkeys(("one_copy_pmu", "trunc", "invalid"), "one_copy"),
    "zero_copy_xdp": "zero_copy",
}
# Golden file -> (record, verbose, explain, base). The file has only the differences from a base report.
CASES: dict[str, tuple[str, bool, bool, str | None]] = {
    **{name: (name, False, False, DIFFERS_FROM.get(name)) for name in RECORDS},
    "zero_copy_verbose": ("zero_copy", True, False, "zero_copy"),
    "zero_copy_explain": ("zero_copy", False, True, "zero_copy"),
    "two_copy_explain": ("two_copy", False, True, "two_copy"),
    "zero_copy_xdp_explain": ("zero_copy_xdp", False, True, "zero_copy_explain"),
    "unknown_explain": ("unknown", False, True, "unknown"),
}


def plain_console(width: int) -> Console:
    return Console(file=io.StringIO(), width=width, color_system=None)


def printed(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def report(record: Record, *, width: int = 100, verbose: bool = False, explain: bool = False) -> str:
    console = plain_console(width)
    terminal.render(typed_whole(record), verbose=verbose, explain=explain, console=console)
    return printed(console)


def check_golden(name: str, text: str) -> None:
    path = GOLDEN / f"{name}.txt"
    if RENEW:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), f"{path.name}: differs: `make golden` writes it anew"


def broken_counts() -> Record:
    """Return a run with two loss counters above zero. The total of the second is unknown."""
    raw = raw_record("one_copy")
    raw["loss"] |= {"samples_stack_map_full": 3, "recursion_send_bytes": 2}
    return derive(raw)


def lines_of(text: str, label: str) -> list[str]:
    """Return a labelled line with its continuation lines."""
    lines = text.splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith(label))
    rest = lines[first + 1 :]
    hanging = next((number for number, line in enumerate(rest) if not line.startswith(" " * 14)), len(rest))
    return lines[first : first + 1 + hanging]


def test_losses_of_zero_are_a_single_line() -> None:
    quiet = lines_of(report(RECORDS["one_copy"]()), "losses")
    assert quiet == ["losses        none; 12 loss counters read, all zero"]
    verbose = lines_of(report(RECORDS["one_copy"](), verbose=True), "losses")
    assert verbose[0] == quiet[0] and len(verbose) <= 4
    assert "recursion_{send_bytes, receive_bytes, copy_out_bytes" in " ".join(verbose)
    assert "0.0 %" not in " ".join(verbose)
    lost = " ".join(" ".join(lines_of(report(broken_counts()), "losses")).split())
    assert "samples_stack_map_full 3 of " in lost and "recursion_send_bytes 2 of " in lost
    assert "calls_task_map_full" not in lost


@pytest.mark.parametrize("verbose", [False, True])
def test_a_missing_pmu_is_explained_once(verbose: bool) -> None:
    """The line of counters explains it. Without counters, the line of the sampler does, for all events."""
    record = RECORDS["one_copy"]()
    assert report(record, verbose=verbose).count("PMU") == 1
    record["counters"] = {"sender": {}, "receiver": {}}
    text = " ".join(" ".join(lines_of(report(record, verbose=verbose), "instruments")).split())
    assert text.count("this machine has no PMU") == 1
    assert "cpu-clock at 4,000 Hz; cycles, LLC-load-misses, L1-dcache-load-misses unsupported: " in text


@pytest.mark.parametrize(
    ("buckets", "p50", "p99"),
    [
        ([], None, None),
        ([[0, 1, 10]], "1 ns", "1 ns"),
        ([[4_096, 5_120, 50], [8_192, 10_240, 50]], "5.12 us", "10.2 us"),
        ([[4_096, 5_120, 49], [8_192, 10_240, 51]], "10.2 us", "10.2 us"),
        ([[4_096, 5_120, 99], [1 << 20, 1_310_720, 1]], "5.12 us", "5.12 us"),
        ([[4_096, 5_120, 98], [1 << 20, 1_310_720, 2]], "5.12 us", "1.31 ms"),
    ],
)
def test_a_quantile_is_the_upper_end_of_its_bucket(
    buckets: list[list[int]], p50: str | None, p99: str | None
) -> None:
    histogram = Histogram("ns", buckets)
    assert [evidence.quantile(histogram, share) for share in (0.50, 0.99)] == [p50, p99]


def report_of(name: str) -> str:
    record, verbose, explain, _ = CASES[name]
    return report(RECORDS[record](), verbose=verbose, explain=explain)


def changes(before: str, after: str) -> str:
    """Return the removed (-) and added (+) lines."""
    lines = difflib.unified_diff(before.splitlines(keepends=True), after.splitlines(keepends=True), n=0)
    return "".join(line for line in list(lines)[2:] if not line.startswith("@@"))


@pytest.mark.parametrize("name", CASES)
def test_the_report_is_the_golden_text(name: str) -> None:
    base = CASES[name][-1]
    text = report_of(name)
    check_golden(name, changes(report_of(base), text) if base else text)


ELSEWHERE = (
    "elsewhere on this machine: 400 ms of softirq work for packets of other or unknown programs, not counted "
    "above "
    "(packets of other programs, timers, the scheduler)"
)


def report_of_watched(record: Record) -> str:
    console = plain_console(100)
    watch.render(typed_whole(record), verbose=False, console=console)
    return printed(console)


@pytest.mark.parametrize(
    ("make_record", "report_text"),
    [(lambda: raw_record("one_copy"), report), (watched_record, report_of_watched)],
    ids=["own", "watched"],
)
def test_softirq_work_of_other_programs_is_one_line_below_the_tables(
    make_record: Callable[[], Record], report_text: Callable[[Record], str]
) -> None:
    """Copies of other programs take 400 ms in softirq. They add a sentence and change no other line."""
    alone, with_others = (
        report_text(derive(make_record())),
        report_text(derive(with_foreign_copies(make_record(), tie=None))),
    )
    assert "elsewhere on this machine" not in alone
    lines = changes(alone, with_others).splitlines()
    assert [line[0] for line in lines] == ["+"] * len(lines)
    assert " ".join(" ".join(line[1:] for line in lines).split()) == ELSEWHERE
    above, _, below = with_others.partition("elsewhere on this machine")
    assert "ALL CPU TIME" in above and "SYSTEM CALLS" in below


def test_softirq_work_charged_to_other_tasks_names_its_rule() -> None:
    record = derive(with_foreign_copies(watched_record(), tie="packet"))
    assert record["sides"]["other"]["rule"] == "on packets of its connections"
    text = " ".join(report_of_watched(record).split())
    assert (
        "other: rows add up to 400 ms of 400 ms CPU time, 1,600 samples (softirq work charged to other "
        "tasks, "
        "on packets of its connections)"
    ) in text
    assert "elsewhere on this machine" not in text


@pytest.mark.parametrize("name", RECORDS)
def test_consoles_of_any_width_show_complete_lines_and_all_numbers(name: str) -> None:
    record = RECORDS[name]()
    for width in (80, 100, 132):
        text = report(record, width=width, verbose=True, explain=True)
        assert max(map(len, text.splitlines())) <= min(width, REPORT_WIDTH)
        assert text.isascii() and not re.search(r"\.\.\.|None| nan", text)
    numbers = {width: set(re.findall(r"\d[\d,.]*", report(record, width=width))) for width in (80, 100)}
    assert numbers[100] <= numbers[80]


def test_rendering_does_not_change_the_record() -> None:
    record = RECORDS["zero_copy"]()
    before = copy.deepcopy(record)
    report(record, verbose=True, explain=True)
    assert record == before


class Terminal(io.StringIO):
    """Stream that claims to be a terminal."""

    def isatty(self) -> bool:
        return True


def test_with_no_color_there_is_no_escape_code(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("TERM", "xterm-256color"), ("COLUMNS", "100")):
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    record = RECORDS["invalid"]()
    coloured = Terminal()
    terminal.render(
        typed_whole(RECORDS["invalid"]()), verbose=False, explain=False, console=make_console(coloured)
    )
    assert "\x1b[" in coloured.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    plain = Terminal()
    terminal.render(typed_whole(record), verbose=True, explain=True, console=make_console(plain))
    assert "\x1b" not in plain.getvalue()


def test_a_pipe_gets_a_hundred_columns_and_no_escape_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    pipe = io.StringIO()
    terminal.render(
        typed_whole(RECORDS["one_copy"]()), verbose=False, explain=False, console=make_console(pipe)
    )
    assert pipe.getvalue() == report(RECORDS["one_copy"]())


def test_the_summary_names_invalid_runs_and_ignores_their_numbers() -> None:
    records = []
    for repeat, rate in enumerate((20.0, 22.0, 99.0)):
        record = RECORDS["zero_copy"]()
        record["run"]["id"] = f"profile-zero_copy-{repeat}"
        record["throughput_gbps"]["unprobed"] = rate
        records.append(record)
    records[2]["verdict"] |= {"valid": False, "reasons": ["sent_bytes: broken"]}
    console = plain_console(100)
    render_summary([typed_whole(record) for record in records], console)
    check_golden("summary", printed(console))
    assert "median 21.0 Gb/s, 20.0 Gb/s .. 22.0 Gb/s (2 runs)" in printed(console)


@pytest.mark.parametrize("count", (2, 5, 40))
@pytest.mark.parametrize("invalid", (0, 2, 40))
@pytest.mark.parametrize("name", ("zero_copy", "zero_copy_xdp", "tls"))
def test_on_a_terminal_the_summary_is_one_screen_and_counts_every_run(
    name: str, invalid: int, count: int
) -> None:
    """The screen leaves one line for the shell's prompt. Invalid runs are listed first."""
    run_record = derive(with_tls(raw_record("zero_copy"))) if name == "tls" else RECORDS[name]()
    broken = run_record["verdict"] | broken_record()["verdict"]
    records = [
        run_record
        | {"run": run_record["run"] | {"id": f"run-{n}"}}
        | ({"verdict": broken} if count - n <= invalid else {})
        for n in range(count)
    ]
    console = Console(file=io.StringIO(), width=80, height=24, color_system=None, force_terminal=True)
    render_summary([typed_whole(record) for record in records], console)
    lines = printed(console).splitlines()
    assert len(lines) < 24 and max(map(len, lines)) <= 80
    shown = [line.split()[0] for line in lines if re.match(r"run-\d+ ", line)]
    more = re.search(r"^and (\d+) more", printed(console), re.MULTILINE)
    assert len(shown) + (int(more[1]) if more else 0) == count
    left_out = sum(line.endswith("INVALID, left out") for line in lines)
    assert left_out in (min(invalid, count), len(shown))
    assert "goodput       " in printed(console) and "COPIES" in printed(console)


def test_a_summary_without_a_valid_run_has_no_numbers() -> None:
    record = RECORDS["invalid"]()
    console = plain_console(80)
    render_summary([typed_whole(record)], console)
    assert "n/a: no valid run" in printed(console)


def test_the_path_drawing_shows_encryption_and_decryption_in_order() -> None:
    text = report(derive(with_tls(raw_record("one_copy"))), explain=True)
    drawing = text.partition("THE PATH OF A BYTE")[2].partition("WHAT THE ROWS MEAN")[0]
    positions = [
        drawing.index(f"  {name}: ")
        for name in ("into the kernel", "encryption", "decryption", "to the receiver")
    ]
    assert positions == sorted(positions)


def test_a_wide_table_continues_below_with_its_keys_repeated() -> None:
    table = TextTable(("name",), "first", "second", "", optional=("",))
    table.add("a", "1" * 8, "2" * 8, "###")
    table.add("b", None, "3", "")
    assert [line.plain for line in table.lines(40)] == [
        "name     first    second",
        "a     11111111  22222222  ###",
        "b          n/a         3",
    ]
    assert [line.plain for line in table.lines(16)] == [
        "name     first",
        "a     11111111",
        "b          n/a",
        "",
        "name    second",
        "a     22222222",
        "b            3",
    ]


def test_a_column_without_any_value_is_left_out() -> None:
    table = TextTable(("name",), "known", "unknown")
    table.add("a", "1", None)
    assert [line.plain for line in table.lines(80)] == ["name  known", "a         1"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (spelling.format_bytes(65_536), "64 KiB"),
        (spelling.format_bytes(1_000), "1000 B"),
        (spelling.format_bytes(1_253_638_144), "1.17 GiB"),
        (spelling.format_bytes(1_253_638_144, exact=True), "1,253,638,144 B"),
        (spelling.format_bytes(None), "n/a"),
        (spelling.format_ns(999), "999 ns"),
        (spelling.format_ns(1_234_567), "1.23 ms"),
        (spelling.format_gbps(0.27), "0.27 Gb/s"),
        (spelling.format_gbps(123.4), "123 Gb/s"),
        (spelling.format_tenths(0.0), "0.0"),
        (spelling.format_tenths(0.01), "<0.1"),
        (spelling.format_percent(0.5), "50.0 %"),
        (spelling.format_percent(None), None),
        (spelling.format_interval(1.0, None), None),
        (spelling.format_bar(0.5, 0.5, 10), "#" * 10),
        (spelling.format_bar(None, 0.5, 10), ""),
    ],
)
def test_quantities_are_spelled_with_units(text: str | None, expected: str | None) -> None:
    assert text == expected


def test_prose_wraps_with_a_hanging_indent_and_a_number_stays_with_its_unit() -> None:
    assert [line.plain for line in wrap("took 15 ms", 8)] == ["took", "15 ms"]
    assert [line.plain for line in wrap("one two three", 9, indent=2)] == ["one two", "  three"]


def test_progress_in_a_log_is_sparse() -> None:
    now_s = 0.0
    log = io.StringIO()
    with StepProgress("run", 3, stream=log, clock=lambda: now_s) as steps:
        for phase, at_s in (("ledger", 0.0), ("calls", 3.0), ("unprobed", 12.0)):
            now_s = at_s
            steps.begin(phase)
            steps.done()
    # Two steps took 12 s, so the third should take 6 s.
    assert log.getvalue() == "run: 1 of 3: ledger\nrun: 3 of 3: unprobed, 6 s left\n"


def test_quiet_progress_prints_nothing() -> None:
    for stream in (io.StringIO(), Terminal()):
        with StepProgress("run", 1, quiet=True, stream=stream) as steps:
            steps.begin("ledger")
            steps.done()
        assert stream.getvalue() == ""


def test_progress_on_a_terminal_is_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    stream = Terminal()
    with StepProgress("run", 2, stream=stream) as steps:
        steps.begin("ledger")
        steps.done()
    assert "ledger" in stream.getvalue()
    assert "1/2" in stream.getvalue()
