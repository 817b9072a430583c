"""perf's output of several versions and machines, and what may be called a number."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from copyscope.run.counters import EVENTS, TLB_FLUSHES, Counter, all_unsupported, combine, parse, split_event
from copyscope.run.perf_stat import explain_failure
from hypothesis import given
from hypothesis import strategies as st

DATA = Path(__file__).parent / "data" / "perf"
SOFTWARE = {event.name for event in EVENTS if event.software}


def count(name: str) -> dict[str, Counter]:
    return combine(parse((DATA / name).read_text()))


@pytest.mark.parametrize("name", ["no-pmu-6.1.json", "no-pmu-6.1.csv"])
def test_a_machine_without_pmu_has_no_hardware_numbers(name: str) -> None:
    counters = count(name)
    assert list(counters) == [event.name for event in EVENTS]
    for event, counter in counters.items():
        if event in SOFTWARE:
            assert (counter.status, counter.running, counter.reason) == ("measured", 1.0, None)
        else:
            assert (counter.value, counter.status, counter.running) == (None, "unsupported", None)
            assert counter.reason and "PMU" in counter.reason
    assert counters["task-clock"].unit == "ns"
    assert counters["task-clock"].value == pytest.approx(200_240_000, rel=0.001)
    assert counters["cpu-migrations"].value == 0  # a counted zero stays a zero


def test_counting_user_mode_only_is_not_counting() -> None:
    counters = count("user-only-6.1.json")
    assert counters["context-switches"].value is None
    assert "user mode only" in (counters["context-switches"].reason or "")


def test_a_plain_machine() -> None:
    counters = count("plain-6.1.json")
    assert counters["cycles"] == Counter(6_871_203_312, "cycles", "measured", 1.0, None)
    assert counters["task-clock"].value == 2_001_993_117
    assert {counter.status for counter in counters.values()} == {"measured"}


def test_perf_without_json() -> None:
    counters = count("plain-5.10.csv")
    assert counters["instructions"].value == 9_120_884_101
    assert counters["cycles"].status == "scaled"
    assert counters["cycles"].running == pytest.approx(0.75)
    assert counters["cycles"].value == pytest.approx(6_871_203_312 / 0.75, rel=1e-6)
    assert counters["task-clock"].value == 2_001_990_000  # CSV has two decimals of a millisecond
    assert counters["LLC-load-misses"].status == counters["LLC-store-misses"].status == "unsupported"


def test_multiplexed_counters_are_scaled_by_exact_time() -> None:
    counters = count("multiplexed-6.12.json")
    cycles = counters["cycles"]
    assert (cycles.status, cycles.value, cycles.running) == ("scaled", 6_875_000_000, 0.16)
    assert counters["L1-dcache-load-misses"].value == 10_000_000
    nearly = counters["cache-misses"]  # 99.95 % of the time; perf prints 99
    assert nearly.status == "scaled" and nearly.running == pytest.approx(0.9995)
    assert counters["LLC-load-misses"].value is None
    assert counters["LLC-store-misses"].value == 0 and counters["LLC-store-misses"].status == "scaled"


def test_truncated_percent_is_refined_by_the_task_clock() -> None:
    text = (DATA / "multiplexed-6.12.json").read_text().replace("320000000", "335000000")  # 16.75 %
    assert combine(parse(text))["cycles"].running == pytest.approx(0.1675)


def test_hybrid_parts_are_kept_apart_and_summed() -> None:
    counters = count("hybrid-6.8.json")
    cycles = counters["cycles"]
    assert (cycles.value, cycles.status, cycles.running) == (7_000_000_000, "measured", 1.0)
    assert cycles.parts is not None
    assert [(part.pmu, part.value, part.running, part.share) for part in cycles.parts] == [
        ("cpu_atom", 1_000_000_000, 0.25, 0.25),
        ("cpu_core", 6_000_000_000, 0.75, 0.75),
    ]
    one_sided = counters["instructions"]  # never ran on an E core: known, because the P cores cover it all
    assert one_sided.value == 9_000_000_000 and one_sided.status == "measured"
    assert one_sided.parts is not None and one_sided.parts[0].value is None
    multiplexed = counters["LLC-load-misses"]
    assert multiplexed.status == "scaled" and multiplexed.running == pytest.approx(0.5)
    assert multiplexed.value == 800_000


def test_hybrid_part_that_cannot_be_counted_makes_the_sum_unknown() -> None:
    misses = count("hybrid-6.8.json")["L1-dcache-load-misses"]
    assert misses.value is None and misses.status == "unsupported"
    assert (
        misses.reason is not None and "cpu_atom cannot count it" in misses.reason and "75%" in misses.reason
    )
    assert misses.parts is not None and misses.parts[1].value == 40_000_000
    assert count("hybrid-6.8.json")["LLC-store-misses"].value is None
    assert count("hybrid-6.8.json")["cache-misses"].value is None


def test_one_pmu_with_a_name_and_a_trailing_comma() -> None:
    counters = count("one-named-pmu-6.10.json")
    assert (counters["cycles"].value, counters["cycles"].parts) == (3112, None)
    assert counters["instructions"].value == 900
    assert counters["page-faults"].reason == "perf printed no readable line for it"


def test_decimal_comma() -> None:
    counters = count("decimal-comma-6.6.json")
    assert counters["task-clock"].value == 1_202_545
    assert counters["cycles"].status == "scaled" and counters["cycles"].running == pytest.approx(
        0.5, abs=0.001
    )


def test_hardware_event_that_ran_0_ns_is_unknown_but_software_is_not() -> None:
    readings = parse((DATA / "plain-6.1.json").read_text())
    idle = [replace(reading, value=0.0, runtime_ns=0) for reading in readings]
    counters = combine(idle)
    assert counters["cycles"].value is None and "0 ns" in (counters["cycles"].reason or "")
    assert counters["page-faults"].value == 0 and counters["page-faults"].status == "measured"


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("cycles", (None, "cycles", "")),
        ("cycles:u", (None, "cycles", "u")),
        ("cpu_atom/cycles/u", ("cpu_atom", "cycles", "u")),
        ("cpu_core/L1-dcache-load-misses/", ("cpu_core", "L1-dcache-load-misses", "")),
        ("cpu-cycles", (None, "cycles", "")),
        ("armv8_cortex_a76/cpu-cycles/", ("armv8_cortex_a76", "cycles", "")),
    ],
)
def test_event_names(text: str, parts: tuple[str | None, str, str]) -> None:
    assert split_event(text) == parts


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("perf-not-found-ubuntu.txt", "linux-tools-$(uname -r)"),
        ("not-permitted-6.1.txt", "not permitted"),
        ("process-gone-6.1.txt", "had ended"),
        ("unknown-option-6.1.txt", "unknown option"),
    ],
)
def test_failures_become_one_line(name: str, words: str) -> None:
    line = explain_failure((DATA / name).read_text())
    assert words in line and "\n" not in line and line.startswith("perf: ")


def test_silence_is_a_reason_too() -> None:
    assert explain_failure("") == "perf: ended without a word"
    assert all(counter.reason == "x" for counter in all_unsupported("x", EVENTS).values())


@given(st.text())
def test_any_text_is_read_without_a_crash_or_an_invented_number(text: str) -> None:
    for line in (text, "{" + text, f"{text},,cycles,{text},{text}"):
        # A value only where the text is one by itself ("1E0" is).
        assert combine(parse(line))["cycles"].value is None or math.isfinite(float(text))


def test_as_record_is_json() -> None:
    row = count("hybrid-6.8.json")["cycles"].as_record()
    assert json.loads(json.dumps(row)) == row
    assert set(row) == {"value", "unit", "status", "running", "reason", "parts"}


@pytest.mark.parametrize(
    "line",
    [
        '{"counter-value" : "17.000000", "unit" : "", "event" : "tlb:tlb_flush", "event-runtime" : 5, '
        '"pcnt-running" : 100.00}',
        "17,,tlb:tlb_flush,5,100.00,,",
    ],
)
def test_a_tracepoint_is_counted_under_our_name(line: str) -> None:
    """Its name has a colon, which separates modifiers in the names of other events."""
    found = combine(parse(line), [TLB_FLUSHES])
    assert found == {"tlb-flushes": Counter(17, "flushes", "measured", 1.0, None)}
