# SPDX-License-Identifier: GPL-2.0-only
"""The exact tier: rows and checks of records with function hooks."""

import math
import random
import statistics
from typing import Any

import pytest
from builders import phase_total, raw_record
from builders.documents import derive, typed_whole, validate
from builders.encrypted import with_tls
from builders.exact import with_functions
from copyscope.base.errors import UsageError
from copyscope.ledger.exact import calls_interval, quantile_at_most
from copyscope.plan.schedule import parse_count
from copyscope.record.instruments import FunctionCell
from copyscope.show.ledger_table import exact_lines
from hypothesis import given
from hypothesis import strategies as st

PHASES = ("unprobed", "ledger", "functions")


def exact_record(impl: str = "zero_copy", **options: Any) -> dict[str, Any]:
    return with_functions(raw_record(impl, phases=PHASES), **options)


def row_of(raw: dict[str, Any], category: str) -> dict[str, Any]:
    row: dict[str, Any] = next(row for row in derive(raw)["exact"] if row["category"] == category)
    return row


def identities(raw: dict[str, Any]) -> dict[str, Any]:
    rows = derive(raw)["identities"]
    return {row["name"]: row for row in rows if row["name"].startswith("functions_")}


@pytest.mark.parametrize("impl", ["one_copy", "two_copy", "zero_copy", "sendfile"])
def test_a_consistent_record_passes_all_checks(impl: str) -> None:
    full = derive(exact_record(impl))
    assert full["verdict"]["valid"], full["verdict"]["reasons"]
    assert validate(full) == []
    assert {row["holds"] for row in identities(exact_record(impl)).values()} == {True}
    spent = phase_total(full, "receiver", "process_cpu_ns", "functions")
    (row,) = [row for row in full["exact"] if row["side"] == "receiver"]
    assert row["share"] == pytest.approx(row["cpu_ns"] / spent)


@pytest.mark.parametrize(
    ("category", "name"),
    [("copy_in", "copy_in"), ("pin", "pin"), ("deferred", "deferred"), ("copy_out", "copy_out")],
)
def test_one_extra_byte_breaks_a_check(category: str, name: str) -> None:
    raw = exact_record()
    next(cell for cell in raw["functions"]["cells"] if cell["category"] == category)["bytes"] += 1
    assert identities(raw)[f"functions_{name}"]["holds"] is False


def test_mapped_bytes_are_checked_against_the_receivers_count() -> None:
    raw = with_functions(raw_record("zero_copy", phases=PHASES, receiver="map"))
    hooked = [s for s in raw["run"]["segments"] if s["phase"] == "functions"]
    taken = sum(s["sides"]["receiver"]["mapped"]["bytes"] for s in hooked)
    cells, like = raw["functions"]["cells"], raw["hooks"][-1]
    cells.append({**cells[-1], "category": "mapped", "bytes": taken, "self_ns": 0, "self_ns_squared": 0.0})
    assert identities(raw)["functions_mapped"]["holds"] is None
    raw["hooks"].append({**like, "id": "map_pages", "category": "mapped"})
    assert {row["holds"] for row in identities(raw).values()} == {True}
    cells[-1]["bytes"] -= 4096
    assert identities(raw)["functions_mapped"]["holds"] is False
    assert "functions_mapped" not in identities(exact_record())


def test_copies_in_other_tasks_time_are_in_no_row_and_break_no_check() -> None:
    raw = exact_record()
    cells = raw["functions"]["cells"]
    own = next(cell for cell in cells if cell["category"] == "deferred")
    theirs = {**own, "side": "other", "bytes": 5_000_000_000}
    cells.append(theirs)
    full = derive(raw)
    assert full["exact"] == derive(exact_record())["exact"]
    assert identities(raw)["functions_deferred"]["holds"] is True
    # Copies of our bytes may have run in the time of other tasks.
    own["bytes"] -= 4096
    assert identities(raw)["functions_deferred"]["holds"] is True
    theirs["bytes"] = 4095
    assert identities(raw)["functions_deferred"]["holds"] is False


def test_a_missing_hook_leaves_its_check_unchecked() -> None:
    raw = exact_record()
    hook = next(row for row in raw["hooks"] if row["id"] == "copy_in" and row["instrument"] == "functions")
    hook |= {"state": "missing", "reason": "inlined or absent in this kernel"}
    check = identities(raw)["functions_copy_in"]
    assert check["holds"] is None and "inlined or absent" in check["reason"]


def test_an_unused_hook_has_no_check_unless_bytes_were_expected() -> None:
    raw = exact_record("one_copy")
    hook = next(row for row in raw["hooks"] if row["id"] == "deferred")
    hook |= {"state": "unused", "reason": "none of this traffic's bytes pass it"}
    assert "functions_deferred" not in identities(raw)
    hook["state"] = "missing"
    assert identities(raw)["functions_deferred"]["holds"] is None
    zerocopy = exact_record("zero_copy")
    hook = next(row for row in zerocopy["hooks"] if row["id"] == "deferred")
    hook |= {"state": "unused", "reason": "none of this traffic's bytes pass it"}
    assert identities(zerocopy)["functions_deferred"]["holds"] is None


@pytest.mark.parametrize("other", ["copy_in_check", "copy_in_call", "copy_in_call_around"])
def test_one_of_several_hooks_of_a_copy_is_enough(other: str) -> None:
    raw = exact_record()
    hook = next(row for row in raw["hooks"] if row["id"] == "copy_in" and row["instrument"] == "functions")
    raw["hooks"].append({**hook, "id": other})
    hook |= {"state": "missing", "reason": "inlined or absent in this kernel"}
    assert identities(raw)["functions_copy_in"]["holds"] is True


def test_ktls_hooks_divide_plaintext_into_copied_and_pinned_bytes() -> None:
    raw = with_tls(exact_record("one_copy"))
    names = {"copy_in_record": "copy_in", "pin_record": "pin"}
    hook = next(row for row in raw["hooks"] if row["instrument"] == "functions")
    raw["hooks"] += [{**hook, "id": id_, "category": category} for id_, category in names.items()]
    # The hook of copies saw a quarter of the plaintext, and the hook of pinned pages saw the rest.
    cells = {cell["category"]: cell for cell in raw["functions"]["cells"]}
    sent = cells["copy_in"]["bytes"]
    cells["copy_in"]["bytes"], cells["pin"]["bytes"] = sent // 4, sent - sent // 4
    full = derive(raw)
    assert {row["holds"] for row in identities(raw).values()} == {True}
    rows = {row["account"]: row for row in full["ledger"]}
    all_bytes = rows["encrypt"]["bytes"]
    assert rows["copy_in"]["bytes"] == pytest.approx(all_bytes / 4, abs=1)
    assert rows["pin"]["bytes"] == pytest.approx(all_bytes * 3 / 4, abs=1)
    cells["pin"]["bytes"] -= 1
    assert identities(raw)["functions_plaintext"]["holds"] is False
    raw["hooks"] = [row for row in raw["hooks"] if row["id"] != "copy_in_record"]
    rows = {row["account"]: row for row in derive(raw)["ledger"]}
    assert rows["copy_in"]["bytes"] is None and rows["pin"]["bytes"] is not None


def test_io_uring_has_checks_of_bytes_but_not_of_completions() -> None:
    checks = identities(exact_record("uring_zc"))
    assert {name for name, row in checks.items() if row["holds"] is None} == {"functions_completions"}
    assert {row["holds"] for name, row in checks.items() if name != "functions_completions"} == {True}
    assert "io_uring" in checks["functions_completions"]["reason"]


def test_a_record_without_function_hooks_has_no_exact_rows() -> None:
    full = derive(raw_record("one_copy"))
    assert full["exact"] == [] and identities(raw_record("one_copy")) == {}


def life(raw: dict[str, Any]) -> dict[str, Any]:
    section = derive(raw)["zerocopy_life"]
    assert section is not None
    return dict(section)


def test_late_copies_belong_to_the_sender_on_any_task() -> None:
    raw = exact_record()
    (owned,) = life(raw)["owners"]
    hooked = [s["sides"]["sender"] for s in raw["run"]["segments"] if s["phase"] == "functions"]
    copied = sum(sender["zerocopy"]["bytes_copied"] for sender in hooked)
    assert owned["owner_side"] == "sender" and owned["bytes"] == copied > 0
    assert [run["side"] for run in owned["runs"]] == ["sender", "receiver"]
    assert sum(run["bytes"] for run in owned["runs"]) == copied


def test_quantiles_of_latency_are_upper_bounds() -> None:
    raw = exact_record()
    (notified,) = life(raw)["notified"]
    assert (notified["p50_ns"], notified["p99_ns"]) == (0, 1279)
    raw["functions"]["completion_latency"][0]["histogram"]["buckets"] = []
    (notified,) = life(raw)["notified"]
    assert notified["p50_ns"] is None


@given(
    st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 10**6), st.integers(1, 50)), min_size=1),
    st.floats(0.01, 1),
)
def test_quantile_at_most_is_in_the_bucket_of_the_quantile(
    widths: list[tuple[int, int, int]], share: float
) -> None:
    buckets, low = [], 0
    for gap, width, count in widths:
        buckets.append([low + gap, low + gap + width, count])
        low += gap + width
    # each value at the top of its bucket
    values = [high - 1 for _, high, count in buckets for _ in range(count)]
    limit = quantile_at_most(buckets, share)
    assert limit is not None
    assert sum(value <= limit for value in values) >= share * len(values) - 1e-6
    assert sum(value < limit for value in values) < share * len(values) + 1e-6


def test_a_copy_may_have_no_known_owner() -> None:
    raw = exact_record()
    raw["functions"]["owners"][0]["owner_side"] = None
    assert [row["owner_side"] for row in life(raw)["owners"]][-1] in (None, "sender")


@pytest.mark.parametrize("key", ["copied", "zerocopied"])
def test_one_extra_completion_breaks_a_check(key: str) -> None:
    raw = exact_record()
    raw["functions"]["completions"][0][key] += 1
    assert identities(raw)["functions_completions"]["holds"] is False


def test_owners_without_their_hooks_are_unknown_with_a_reason() -> None:
    raw = exact_record()
    raw["functions"] |= dict.fromkeys(("owners", "completions", "completion_latency"))
    hook = next(row for row in raw["hooks"] if row["id"] == "zerocopy_use")
    hook |= {"state": "missing", "reason": "msg_zerocopy_realloc: inlined or absent in this kernel"}
    full = derive(raw)
    assert full["zerocopy_life"] is None and validate(full) == []
    checks = {row["name"]: row for row in full["identities"]}
    ended = checks["functions_completions"]
    assert ended["holds"] is None and "msg_zerocopy_realloc" in ended["reason"]


def test_lines_about_late_copies_fit_the_width() -> None:
    lines = [line.plain for line in exact_lines(typed_whole(derive(exact_record())), 100)]
    text = " ".join(" ".join(lines).split())
    assert max(map(len, lines)) <= 100
    assert "copies of the sender's memory" in text and "softirq on the receiver" in text
    assert "notified p50 by its return, p99 at most 1.28 us after its return" in text


def test_counters_are_exact_if_every_call_was_timed() -> None:
    row = row_of(exact_record(counted={"LLC-load-misses": 3, "page-faults": 5}), "copy_out")
    assert (row["cpu_ns"], row["llc_misses"], row["page_faults"]) == (4_000_000, 12_000_000, 20_000_000)
    assert row["method"] == "exact" and row["ci"] is None and row["reasons"]["ci"] == "each call was timed"
    # of 6,320, 6,560 and 6,400 messages of 64 KiB in the segments of the phase
    assert row["ns_per_kib"] == pytest.approx(4_000_000 / (19_280 * 64), rel=1e-3)
    assert "ns_per_kib" not in row["reasons"]
    row = row_of(exact_record(counted={"page-faults": 5}), "copy_out")
    assert row["llc_misses"] is None and "no such event" in row["reasons"]["llc_misses"]
    assert row["cpu_clock_ns"] is None and "not counted in this run" in row["reasons"]["cpu_clock_ns"]


def test_columns_that_include_the_hooks_own_work_are_unknown() -> None:
    counted = {"cycles": 3, "instructions": 5, "L1-dcache-load-misses": 1, "LLC-load-misses": 1, "r4843": 2}
    full = derive(exact_record("one_copy", counted=counted))
    for row in full["exact"]:
        for column in ("cycles", "instructions", "l1d_misses"):
            assert row[column] is None
            assert row["reasons"][column].startswith("the count includes the hooks' own work, up to +")
        assert row["llc_misses"] == row["cpu_ns"] and "llc_misses" not in row["reasons"]
    # The unknown columns appear nowhere else either.
    assert {row["instructions"] for row in full["ledger"]} == {None}
    assert validate(full) == []
    text = " ".join(line.plain.strip() for line in exact_lines(typed_whole(full), 200))
    assert "the hooks' own work is part of r4843; its amount is unknown" in text
    assert "n/a: l1d_misses, cycles, instructions of a copy: they include the hooks' own work" in text


def test_a_quarter_of_the_calls_gives_an_estimate_with_an_interval() -> None:
    raw = exact_record(gate=4, spread=0.5, counted={"LLC-load-misses": 3})
    row, cell = row_of(raw, "copy_out"), raw["functions"]["cells"][-1]
    scale = cell["calls"] / cell["timed_calls"]
    assert row["method"] == "exact 1/4"
    assert row["self_ns"] == 1_000_000 and row["cpu_ns"] == round(1_000_000 * scale)
    assert row["llc_misses"] == round(3_000_000 * scale)
    # Bytes and calls count all calls, not only the timed calls.
    assert row["bytes"] == row_of(exact_record(), "copy_out")["bytes"]
    # 1.96 x 0.5 / sqrt(n) of the total, with the correction for a finite population
    timed = cell["timed_calls"]
    half = 1.96 * 0.5 * (1 - timed / cell["calls"]) ** 0.5 / (timed - 1) ** 0.5 * row["cpu_ns"]
    assert row["ci"]["high_ns"] - row["cpu_ns"] == pytest.approx(half, rel=1e-3)
    assert row["cpu_ns"] - row["ci"]["low_ns"] == pytest.approx(half, rel=1e-3)
    assert {identity["holds"] for identity in identities(raw).values()} == {True}


def test_a_multiplexed_counter_is_scaled_up() -> None:
    raw = exact_record(counted={"LLC-load-misses": 3}, running={"LLC-load-misses": 0.25})
    assert row_of(raw, "copy_out")["llc_misses"] == 48_000_000


def test_a_raw_event_is_counted_and_shown_by_its_code() -> None:
    raw = exact_record(counted={"LLC-load-misses": 3, "r4843": 2})
    row = row_of(raw, "copy_out")
    assert row["raw"] == {"r4843": 2 * row["cpu_ns"]}
    assert "r4843/KiB" in "\n".join(line.plain for line in exact_lines(typed_whole(derive(raw)), 200))


def test_an_event_of_some_cores_is_known_for_sides_pinned_to_them() -> None:
    raw = exact_record(counted={"LLC-load-misses": 3})
    event = next(row for row in raw["functions"]["events"] if row["name"] == "LLC-load-misses")
    event |= {
        "status": "partial",
        "cpus": "0-11,16",
        "reason": "only on CPUs 0-11,16: cpu_atom has no such event",
    }
    misses_of_all = row_of(exact_record(counted={"LLC-load-misses": 3}), "copy_out")["llc_misses"]
    for cpus, is_known in (([2, 16], True), ([2, 12], False), (None, False), ([], False)):
        raw["traffic"]["receiver"]["options"]["cpus"] = cpus
        row = row_of(raw, "copy_out")
        assert row["llc_misses"] == (misses_of_all if is_known else None)
        assert is_known or "cpu_atom has no such event" in row["reasons"]["llc_misses"]


def test_a_counter_that_never_ran_is_unknown() -> None:
    raw = exact_record(counted={"LLC-load-misses": 0}, running={"LLC-load-misses": 0.0})
    row = row_of(raw, "copy_out")
    assert row["llc_misses"] is None and "never got a counter" in row["reasons"]["llc_misses"]


def test_time_of_calls_without_a_timed_call_is_unknown() -> None:
    raw = exact_record(gate=4, counted={"LLC-load-misses": 3})
    cell = next(cell for cell in raw["functions"]["cells"] if cell["category"] == "pin")
    cell |= {"timed_calls": 0, "self_ns": 0, "self_ns_squared": 0.0, "counters": {"LLC-load-misses": 0}}
    row = row_of(raw, "pin")
    unknown = ("cpu_ns", "ns_per_kib", "share", "llc_misses", "ci")
    assert all(row[key] is None and "was timed" in row["reasons"][key] for key in unknown)
    assert row["calls"] and row["bytes"]
    assert validate(derive(raw)) == []


@given(
    spent=st.lists(st.integers(0, 10**7), min_size=40, max_size=400),
    gate=st.integers(2, 8),
    seed=st.integers(0, 1000),
)
def test_the_interval_is_that_of_a_random_sample_without_replacement(
    spent: list[int], gate: int, seed: int
) -> None:
    timed = random.Random(seed).sample(spent, len(spent) // gate)
    squared = float(sum(ns * ns for ns in timed))
    cell = FunctionCell("sender", "process", "send", len(spent), 0, len(timed), sum(timed), squared, {})
    interval, reason = calls_interval(cell)
    assert reason is None and interval is not None
    total = len(spent) * statistics.mean(timed)
    error = len(spent) * statistics.stdev(timed) * math.sqrt((1 - len(timed) / len(spent)) / len(timed))
    assert interval.high_ns == pytest.approx(total + 1.96 * error, rel=1e-4, abs=2)
    assert interval.low_ns >= sum(timed) - 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("page-faults,teapots", "teapots"),
        ("cycles", "cycles: cannot be counted"),
        ("r48G3", "r48G3"),
        ("r" + 17 * "f", "rHEX"),
        ("", "--count '': cannot be counted"),
        ("r03,r03", "twice"),
        ("r03,dTLB-load-misses,cpu-clock,page-faults,LLC-load-misses", "at most 4"),
    ],
)
def test_invalid_lists_of_counters_are_usage_errors(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        parse_count(text)


def test_valid_lists_of_counters_are_accepted() -> None:
    assert parse_count("none") == ""
    assert parse_count("cpu-clock, page-faults") == "cpu-clock,page-faults"
    assert parse_count("LLC-load-misses,r4843,rC0") == "LLC-load-misses,r4843,rC0"
