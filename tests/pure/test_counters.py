# SPDX-License-Identifier: GPL-2.0-only
"""Output of several versions of perf on several machines: only reliable counts become numbers."""

import json
import math
from dataclasses import replace
from pathlib import Path

import pytest
from copyscope.run.counters import (
    EVENTS,
    SENDER_EVENTS,
    TLB_FLUSHES,
    CounterEvent,
    CounterRow,
    adapt_to_processor,
    all_unsupported,
    combine,
    parse,
    split_event,
)
from copyscope.run.perf_stat import explain_failure
from copyscope.taxonomy.events import EVENT_COLUMNS
from hypothesis import given
from hypothesis import strategies as st
from msgspec import to_builtins

DATA = Path(__file__).parent / "data" / "perf"
SOFTWARE = {event.name for event in EVENTS if event.software}
OTHERS = (CounterEvent("LLC-store-misses", "misses"), CounterEvent("cache-misses", "misses"))


def count(name: str) -> dict[str, CounterRow]:
    return combine(parse((DATA / name).read_text()), (*EVENTS, *OTHERS))


@pytest.mark.parametrize("name", ["no-pmu-6.1.json", "no-pmu-6.1.csv"])
def test_a_machine_without_pmu_has_no_hardware_numbers(name: str) -> None:
    counters = count(name)
    assert list(counters) == [event.name for event in (*EVENTS, *OTHERS)]
    for event, counter in counters.items():
        if event in SOFTWARE:
            assert (counter.status, counter.running, counter.reason) == ("measured", 1.0, None)
        else:
            assert (counter.value, counter.status, counter.running) == (None, "unsupported", None)
            assert counter.reason and "PMU" in counter.reason
    assert counters["task-clock"].unit == "ns"
    assert counters["task-clock"].value == pytest.approx(200_240_000, rel=0.001)
    assert counters["cpu-migrations"].value == 0  # a measured zero is not unknown


def test_counter_of_user_mode_only_is_unknown() -> None:
    counters = count("user-only-6.1.json")
    assert counters["context-switches"].value is None
    assert "user mode only" in (counters["context-switches"].reason or "")


def test_counters_of_an_ordinary_machine_are_measured() -> None:
    counters = count("plain-6.1.json")
    assert counters["cycles"] == CounterRow(6_871_203_312, "cycles", "measured", 1.0, None)
    assert counters["task-clock"].value == 2_001_993_117
    assert {counter.status for counter in counters.values()} == {"measured"}


def test_csv_of_old_perf_is_read() -> None:
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


def test_hybrid_parts_are_kept_and_summed() -> None:
    counters = count("hybrid-6.8.json")
    cycles = counters["cycles"]
    assert (cycles.value, cycles.status, cycles.running) == (7_000_000_000, "measured", 1.0)
    assert cycles.parts is not None
    assert [(part.pmu, part.value, part.running, part.share) for part in cycles.parts] == [
        ("cpu_atom", 1_000_000_000, 0.25, 0.25),
        ("cpu_core", 6_000_000_000, 0.75, 0.75),
    ]
    one_sided = counters[
        "instructions"
    ]  # never on an E core; known, because the P cores cover all of the time
    assert one_sided.value == 9_000_000_000 and one_sided.status == "measured"
    assert one_sided.parts is not None and one_sided.parts[0].value is None
    multiplexed = counters["LLC-load-misses"]
    assert multiplexed.status == "scaled" and multiplexed.running == pytest.approx(0.5)
    assert multiplexed.value == 800_000


def test_hybrid_part_that_cannot_be_counted_makes_the_sum_unknown() -> None:
    misses = count("hybrid-6.8.json")["L1-dcache-load-misses"]
    assert misses.value is None and misses.status == "unsupported"
    assert misses.reason is not None and "75%" in misses.reason
    assert "cpu_atom cannot count this event" in misses.reason
    assert misses.parts is not None and misses.parts[1].value == 40_000_000
    assert count("hybrid-6.8.json")["LLC-store-misses"].value is None
    assert count("hybrid-6.8.json")["cache-misses"].value is None


def test_pmu_without_a_line_makes_the_sum_unknown() -> None:
    """perf 6.1 prints no line for a PMU that lacks the event, so the count of the other PMU is incomplete."""
    counters = count("hybrid-6.1.json")
    misses = counters["L1-dcache-load-misses"]
    assert (misses.value, misses.status) == (None, "unsupported")
    assert misses.reason == "cpu_atom cannot count this event; the other PMUs cover 44% of the time"
    assert misses.parts is not None
    assert [(part.pmu, part.value, part.running) for part in misses.parts] == [
        ("cpu_core", 44_000_000, 0.44),
        ("cpu_atom", None, 0.0),
    ]
    assert (counters["LLC-load-misses"].value, counters["LLC-load-misses"].status) == (400_000, "measured")
    assert counters["context-switches"].value == 41


def test_one_pmu_suffices_if_all_time_was_spent_on_it() -> None:
    text = (DATA / "hybrid-6.1.json").read_text()
    for ran, none in (
        ("560000000, ", "0, "),
        ("56.00", "0.00"),
        ("440000000, ", "1000000000, "),
        ("44.00", "100.00"),
    ):
        text = text.replace(ran, none)
    misses = combine(parse(text))["L1-dcache-load-misses"]
    assert (misses.value, misses.status, misses.running) == (44_000_000, "measured", 1.0)


def test_every_hardware_event_has_a_column() -> None:
    hardware = {event.name for event in EVENTS if not event.software}
    assert hardware == {names[0] for names in EVENT_COLUMNS.values()}


def test_all_events_fit_the_counters_of_a_xeon_with_two_threads_per_core() -> None:
    """A thread has four general counters, and fixed counters for one event each.

    See intel_skl_event_constraints[] in arch/x86/events/intel/core.c.
    """
    counted = [event.name for event in SENDER_EVENTS if not event.software]
    # Events that the sampler opens on a Xeon: tests/c/test_sampler.c.
    sampled = ["ref-cycles", "LLC-load-misses", "L1-dcache-load-misses"]
    fixed = ["instructions", "cycles", "ref-cycles"]
    general = sorted((*counted, *sampled))
    for event in fixed:
        general.remove(event)
    assert len(general) <= 4, general


ZEN = {"vendor_id": "AuthenticAMD", "cpu family": "25", "model": "1"}


def test_zen_counts_its_own_event_and_explains_it() -> None:
    events = adapt_to_processor(EVENTS, ZEN)
    assert [event.perf_name for event in events if not event.software] == [
        *("cycles", "instructions", "L1-dcache-load-misses", "r4843")
    ]
    misses = combine(parse("640,,r4843,5,100.00,,"), events)["LLC-load-misses"]
    assert (misses.value, misses.status, misses.unit) == (640, "measured", "misses")
    assert misses.counts is not None and "AMD" in misses.counts and "from memory" in misses.counts
    assert misses.as_record().counts == misses.counts


@pytest.mark.parametrize(
    "cpuinfo",
    [
        {"vendor_id": "GenuineIntel", "cpu family": "25", "model": "97"},
        {**ZEN, "cpu family": "23", "model": "1"},
        {"CPU implementer": "0x41"},
        {},
    ],
    ids=["Intel", "Zen 1", "arm64", "unknown"],
)
def test_other_processors_count_the_generic_event(cpuinfo: dict[str, str]) -> None:
    assert adapt_to_processor(EVENTS, cpuinfo) == EVENTS


def test_missing_event_is_distinguished_from_a_missing_pmu() -> None:
    lacking = "<not supported>,,LLC-load-misses,0,100.00,,"
    reasons = [
        combine(parse(f"{lacking}\n{cycles},,cycles,5,100.00,,"))["LLC-load-misses"].reason
        for cycles in ("640", "<not supported>")
    ]
    assert reasons[0] == "not supported: the PMU of this machine has no such event"
    assert reasons[1] == "not supported: no PMU of this machine (or virtual machine) counts it"


def test_single_named_pmu_and_trailing_comma_are_read() -> None:
    counters = count("one-named-pmu-6.10.json")
    assert (counters["cycles"].value, counters["cycles"].parts) == (3112, None)
    assert counters["instructions"].value == 900
    assert counters["page-faults"].reason == "perf printed no readable line for this event"


def test_decimal_comma_is_read() -> None:
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
def test_event_names_are_split_into_pmu_name_and_modifier(
    text: str, parts: tuple[str | None, str, str]
) -> None:
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
def test_failures_of_perf_are_explained_in_one_line(name: str, words: str) -> None:
    line = explain_failure((DATA / name).read_text())
    assert words in line and "\n" not in line and line.startswith("perf: ")


def test_perf_without_a_message_has_a_reason() -> None:
    assert explain_failure("") == "perf: ended without a message"
    assert all(counter.reason == "x" for counter in all_unsupported("x", EVENTS).values())


@given(st.text())
def test_any_text_is_read_without_a_crash_or_an_invented_number(text: str) -> None:
    for line in (text, "{" + text, f"{text},,cycles,{text},{text}"):
        # Only a text that is a number itself ("1E0") gives a value.
        assert combine(parse(line))["cycles"].value is None or math.isfinite(float(text))


def test_as_record_is_json() -> None:
    row = to_builtins(count("hybrid-6.8.json")["cycles"].as_record())
    assert json.loads(json.dumps(row)) == row
    assert set(row) == {"value", "unit", "status", "running", "reason", "parts", "counts"}


@pytest.mark.parametrize(
    "line",
    [
        '{"counter-value" : "17.000000", "unit" : "", "event" : "tlb:tlb_flush", "event-runtime" : 5, '
        '"pcnt-running" : 100.00}',
        "17,,tlb:tlb_flush,5,100.00,,",
    ],
)
def test_tracepoint_has_the_name_of_its_event(line: str) -> None:
    """The name of a tracepoint contains a colon, which in other event names begins the modifiers."""
    counters = combine(parse(line), [TLB_FLUSHES])
    assert counters == {"tlb-flushes": CounterRow(17, "flushes", "measured", 1.0, None)}
