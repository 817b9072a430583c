# SPDX-License-Identifier: GPL-2.0-only
"""The ledger of invented records: bytes, time and events of each row.

Goldens in data/ledger are the derived sections of three runs; COPYSCOPE_GOLDEN=1 records them anew.
"""

import copy
import os
from pathlib import Path
from typing import Any

import builders
import pytest
from builders.documents import derive, typed_runs, validate
from copyscope.judge import metrics
from copyscope.record import store
from hypothesis import given, settings
from hypothesis import strategies as st

GOLDENS = Path(__file__).parent / "data" / "ledger"
SCENARIOS: dict[str, dict[str, Any]] = {
    "one_copy_veth": {"impl": "one_copy"},
    "two_copy_veth": {"impl": "two_copy"},
    "zero_copy_veth": {"impl": "zero_copy"},
    "zero_copy_veth_xdp": {"impl": "zero_copy", "kind": "veth-xdp"},
    "zero_copy_nics_pmu": {"impl": "zero_copy", "kind": "nics", "pmu": True},
    "per_field_loopback": {"impl": "per_field", "kind": "loopback"},
    "null_veth": {"impl": "null"},
    "sendfile_veth": {"impl": "sendfile"},
    "sendfile_veth_xdp": {"impl": "sendfile", "kind": "veth-xdp"},
    "sendfile_no_gather": {"impl": "sendfile", "scatter_gather": False},
    "one_copy_fixed": {"impl": "one_copy", "fixed_messages": 23},
}
# Scenarios with golden files: late copies; events without a copy; a timed gather.
GOLDEN = ("zero_copy_veth", "zero_copy_nics_pmu", "two_copy_veth")
Record = dict[str, Any]


def derived(impl: str, **options: Any) -> Record:
    return derive(builders.raw_record(impl, **options))


def rows(full: Record, account: str) -> list[Record]:
    return [row for row in full["ledger"] if row["account"] == account]


def home(full: Record, account: str) -> Record:
    """Return the row that has the bytes of an account."""
    return next(
        row for row in rows(full, account) if row["bytes_method"] is not None or row["bytes"] is not None
    )


@pytest.mark.parametrize("name", GOLDEN)
def test_golden(name: str) -> None:
    path = GOLDENS / f"{name}.json"
    raw = builders.raw_record(**SCENARIOS[name])
    data = store.serialise({key: value for key, value in derive(raw).items() if raw.get(key) != value})
    if os.environ.get("COPYSCOPE_GOLDEN"):
        path.write_bytes(data)
    assert path.read_bytes() == data, f"{path.name}: differs: `make golden` writes it anew"


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_a_consistent_record_passes_all_checks_and_stays_unchanged(name: str) -> None:
    raw = builders.raw_record(**SCENARIOS[name])
    before = copy.deepcopy(raw)
    full = derive(raw)
    assert raw == before
    assert store.serialise(derive(full)) == store.serialise(full)
    assert [i for i in full["identities"] if i["holds"] is not True] == []
    assert full["verdict"]["valid"], full["verdict"]["reasons"]
    assert validate(full) == []
    shares = [row["share"] for row in [*full["ledger"], *full["stages"]]]
    assert sum(shares) == pytest.approx(1, abs=1e-4)


def test_bytes_of_a_copied_send() -> None:
    full = derived("one_copy")
    sent = 29_100 * 65_536  # messages of the three ledger segments
    assert home(full, "copy_in")["bytes"] == sent
    assert home(full, "copy_in")["bytes_method"] == "exact"
    assert home(full, "copy_out")["bytes"] == sent
    assert [home(full, a)["bytes"] for a in ("gather", "pin", "deferred", "silent", "completion")] == [0] * 5


def test_bytes_of_zero_copy_sends_that_were_copied_late() -> None:
    full = derived("zero_copy")
    sent = home(full, "pin")["bytes"]
    assert sent == home(full, "copy_out")["bytes"] > 0
    assert (home(full, "deferred")["bytes"], home(full, "deferred")["bytes_method"]) == (sent, "reported")
    assert home(full, "copy_in")["bytes"] == 0
    assert full["zerocopy"]["bytes_zero_copy"] == 0
    assert home(full, "completion")["calls"] == home(full, "pin")["calls"] == home(full, "deferred")["calls"]


def test_bytes_that_a_driver_with_xdp_copied_silently() -> None:
    full = derived("zero_copy", kind="veth-xdp")
    assert home(full, "silent")["bytes"] == home(full, "pin")["bytes"] > 0
    assert home(full, "silent")["bytes_method"] == "derived"
    assert home(full, "deferred")["bytes"] == 0
    assert full["zerocopy"]["bytes_zero_copy"] == 0
    assert full["zerocopy"]["cause"]["code"] == "xdp_native"


def test_bytes_of_zero_copy_sends_without_a_copy() -> None:
    full = derived("zero_copy", kind="nics")
    # The samples have a late copy, but no notification reports it, and bytes follow notifications.
    assert home(full, "deferred")["bytes"] == home(full, "silent")["bytes"] == 0
    assert full["zerocopy"]["bytes_zero_copy"] == home(full, "pin")["bytes"]
    assert full["zerocopy"]["cause"] is None


@pytest.mark.parametrize(("silent_samples", "copied"), [(2, False), (900, True)])
def test_silent_copies_need_enough_sampled_time(silent_samples: int, copied: bool) -> None:
    """No core copies more than 100 bytes per ns: 2 samples are too few for 1.5 GB, 900 are enough."""
    raw = builders.raw_record("zero_copy", kind="nics")
    spare = next(row for row in raw["samples"] if row["category"] == "deferred")
    period = builders.PERIOD_NS
    spare["samples"] -= silent_samples
    spare["weight"] -= silent_samples * period
    spare["weight_squared"] -= silent_samples * period**2
    weights = {"weight": silent_samples * period, "weight_squared": silent_samples * period**2}
    silent = {"samples": silent_samples, **weights}
    raw["samples"].append({**spare, "category": "silent", "symbol": "skb_copy_bits", **silent})
    full = derive(raw)
    assert (home(full, "silent")["bytes"] > 0) is copied
    assert (full["zerocopy"]["bytes_zero_copy"] == 0) is copied


def test_tcp_sends_by_reference_even_without_scatter_gather() -> None:
    """Since 4.17 TCP always has GSO and scatter-gather (sk_setup_caps()), so the packet is copied late."""
    full = derived("zero_copy", scatter_gather=False)
    assert home(full, "copy_in")["bytes"] == 0
    assert home(full, "pin")["bytes"] == home(full, "deferred")["bytes"] > 0
    assert full["zerocopy"]["cause"]["code"] == "no_offload"
    assert all(i["holds"] is not False for i in full["identities"])


@pytest.mark.parametrize("receiver", ["trunc", "splice"])
def test_truncated_and_spliced_bytes_are_not_copied_out(receiver: str) -> None:
    full = derived("one_copy", receiver=receiver)
    assert home(full, "copy_out")["bytes"] == 0
    assert full["verdict"]["valid"]


def test_mapped_pages_have_their_own_account() -> None:
    full = derived("zero_copy", receiver="map")
    mapped, copied = home(full, "mapped"), home(full, "copy_out")
    assert mapped["bytes"] == 15 * copied["bytes"] > 0
    assert mapped["bytes_method"] == "exact" and mapped["calls"] == mapped["bytes"] // (15 * 4096)
    assert mapped["bytes"] + copied["bytes"] <= full["rx_bytes"]
    assert full["verdict"]["valid"]
    assert not any(row["account"] == "mapped" for row in derived("zero_copy")["ledger"])


def test_time_of_a_row_is_its_share_of_samples_times_the_clock() -> None:
    full = derived("one_copy")
    row = home(full, "copy_in")
    assert full["sides"]["sender"]["cpu_ns"] == 3 * 285_000_000
    assert row["cpu_ns"] == pytest.approx(
        row["samples"] / full["sides"]["sender"]["samples"] * 855_000_000, abs=1
    )
    assert row["ci"]["low_ns"] < row["cpu_ns"] < row["ci"]["high_ns"]
    assert row["ns_per_kib"] == pytest.approx(row["cpu_ns"] / (29_100 * 64), abs=0.001)
    assert row["method"] == "sampled"


def test_gather_time_comes_from_its_timer_and_is_subtracted_from_user_time() -> None:
    full = derived("two_copy")
    gather = home(full, "gather")
    assert gather["cpu_ns"] == gather["calls"] * builders.GATHER_NS_PER_MESSAGE
    assert gather["method"] == "exact 1/16"
    assert gather["bytes"] == gather["calls"] * 65_536
    user = next(row for row in full["stages"] if (row["stage"], row["side"]) == ("user", "sender"))
    sampled = sum(r["weight"] for r in full["samples"] if (r["category"], r["side"]) == ("user", "sender"))
    assert user["method"] == "derived"
    assert user["cpu_ns"] + gather["cpu_ns"] == pytest.approx(sampled, rel=0.01)
    assert user["cycles"] is None and "PMU" in user["reasons"]["cycles"]


def test_sum_of_rows_tolerates_only_rounding() -> None:
    """The gather copy takes less than the sampled user time: the tolerance is one ns for each row."""
    full = derived("two_copy")
    rows_of = [row for row in [*full["ledger"], *full["stages"]] if row["side"] == "sender"]
    (check,) = (i for i in full["identities"] if i["name"] == "sender_rows")
    assert check["right"] == 870_000_000 and check["tolerance"] == len(rows_of)


def test_softirq_samples_weigh_nanoseconds() -> None:
    full = derived("one_copy")
    weight = sum(row["weight"] for row in full["samples"] if row["side"] == "other")
    assert full["sides"]["other"]["cpu_ns"] == weight
    assert {row["context"] for row in full["stages"] if row["side"] == "other"} == {"softirq"}


def with_foreign_copies(raw: Record, **tie: str | None) -> Record:
    """Add 400 ms of late copies in the time of ksoftirqd, as another program's zero-copy sends cause."""
    row: Record = {"side": "other", "context": "softirq", "event": "cpu-clock", "kind": "account"}
    row |= {"category": "deferred", "symbol": "skb_copy_ubufs", "samples": 1_600, "weight": 400_000_000}
    row["weight_squared"] = 1_600 * 250_000.0**2
    raw["samples"].append(row | tie)
    return raw


@pytest.mark.parametrize("tie", [{"tie": None}, {}], ids=["of others", "an older record"])
def test_unrelated_softirq_work_is_in_no_sum(tie: dict[str, None]) -> None:
    """Another program's copies change one line of a record: `elsewhere`."""
    alone = derived("one_copy")
    beside = derive(with_foreign_copies(builders.raw_record("one_copy"), **tie))
    assert beside["sides"]["elsewhere"] == {
        **alone["sides"]["elsewhere"],
        "cpu_ns": 400_000_000,
        "samples": 1_600,
    }
    for key in ("ledger", "stages", "verdict", "overhead", "zerocopy"):
        assert beside[key] == alone[key], key
    assert {**beside["sides"], "elsewhere": None} == {**alone["sides"], "elsewhere": None}
    run_alone, run_beside = typed_runs((alone, beside))
    for name in metrics.METRICS:
        assert metrics.read(run_beside, name) == metrics.read(run_alone, name), name


def test_softirq_work_on_packets_of_the_run_is_in_its_ledger() -> None:
    full = derive(with_foreign_copies(builders.raw_record("one_copy"), tie="packet"))
    (row,) = (row for row in rows(full, "deferred") if row["side"] == "other")
    assert row["cpu_ns"] == 400_000_000 and full["sides"]["elsewhere"]["cpu_ns"] == 0
    alone = derived("one_copy")["sides"]["other"]["cpu_ns"]
    assert full["sides"]["other"]["cpu_ns"] == alone + 400_000_000


def test_unrelated_softirq_work_has_a_cause() -> None:
    raw = builders.raw_record("one_copy")
    builders.hook_of(raw, "packet_owner").update(state="missing", how=None, reason="no BTF")
    assert "netif_receive_skb: missing: no BTF" in derive(raw)["sides"]["elsewhere"]["cause"]
    # State of a hook that the collector loaded, but that no segment attached.
    builders.hook_of(raw, "packet_owner").update(state="available", reason=None)
    assert derive(raw)["sides"]["elsewhere"]["cause"].startswith("packets of other programs")
    raw["hooks"] = [hook for hook in raw["hooks"] if hook["id"] != "packet_owner"]
    assert "made before" in derive(raw)["sides"]["elsewhere"]["cause"]


def test_events_are_divided_by_their_own_samples() -> None:
    full = derived("one_copy", pmu=True)
    row = home(full, "copy_in")
    for column, event in (
        ("cycles", "cycles"),
        ("l1d_misses", "L1-dcache-load-misses"),
        ("llc_misses", "LLC-load-misses"),
    ):
        total = full["counters"]["sender"][event]["value"]
        of_sender = row["cpu_ns"] / full["sides"]["sender"]["cpu_ns"]
        assert row[column] == pytest.approx(of_sender * total, rel=0.01)
    assert row["instructions"] is None
    assert "not sampled" in row["reasons"]["instructions"]


def event_of(raw: Record, name: str) -> Record:
    return next(event for event in raw["sampler"]["events"] if event["name"] == name)


def with_second_event(raw: Record, name: str, of: str, weight: float, status: str = "sampled") -> Record:
    """Add samples of an event, with their own weights, wherever the event `of` was sampled."""
    rows = [row for row in raw["samples"] if row["event"] == of]
    changed = {"weight": weight, "weight_squared": weight**2}
    raw["samples"] += [
        {**row, "event": name} | {key: row[key] * times for key, times in changed.items()} for row in rows
    ]
    raw["sampler"]["events"] += [{"name": name, "unit": "cycles", "status": status, "reason": None}]
    return raw


def test_ref_cycles_divide_time_and_cycles_are_a_column() -> None:
    """The receiver's copy ran on a slow core: half the cycles, the same time."""
    all_copies = home(derived("one_copy", pmu=True), "copy_out")
    raw = with_second_event(builders.raw_record("one_copy", pmu=True), "ref-cycles", "cycles", 0.5)
    for row in raw["samples"]:
        if (row["event"], row["category"]) == ("cycles", "copy_out"):
            row["weight"] /= 2
    full = derive(raw)
    row = home(full, "copy_out")
    assert row["cpu_ns"] == all_copies["cpu_ns"] and row["samples"] == all_copies["samples"]
    assert row["cycles"] < 0.7 * all_copies["cycles"]
    # The cycle counter is compared with samples of cycles, not of ref-cycles.
    check = next(row for row in full["identities"] if row["name"] == "sender_time")
    assert check["holds"] and check["unit"] == "cycles" and "cycle counter" in check["what"]


def test_ref_cycles_divide_time_and_cycles_if_cycles_are_not_sampled() -> None:
    """All cores are alike. The weights are nanoseconds, so they are compared with the CPU clock."""
    expected = derived("one_copy", pmu=True)
    raw = builders.raw_record("one_copy", pmu=True)
    for row in raw["samples"]:
        if row["event"] == "cycles":
            # Three cycles are one ns.
            row |= {
                "event": "ref-cycles",
                "weight": row["weight"] / 3,
                "weight_squared": row["weight_squared"] / 9,
            }
    raw["sampler"]["events"] += [{"name": "ref-cycles", "unit": "ns", "status": "sampled", "reason": None}]
    event_of(raw, "cycles").update(status="unsupported", reason="ref-cycles are sampled instead")
    full = derive(raw)
    for account in ("copy_in", "copy_out"):
        row, usual = home(full, account), home(expected, account)
        assert row["cycles"] == pytest.approx(usual["cycles"], rel=1e-3) and row["cpu_ns"] == usual["cpu_ns"]
        assert row["events"]["cycles"]["samples"] == usual["events"]["cycles"]["samples"]
    check = next(row for row in full["identities"] if row["name"] == "sender_time")
    assert check["holds"] and check["unit"] == "ns" and "cycle counter" not in check["what"]
    # The check notices the loss of most samples, also in a guest.
    for row in raw["samples"]:
        if row["event"] == "ref-cycles" and row["side"] == "sender":
            row["weight"] *= 0.4
    check = next(row for row in derive(raw)["identities"] if row["name"] == "sender_time")
    assert check["holds"] is False


def test_time_comes_from_events_that_were_sampled_on_all_cpus() -> None:
    """An event that could be opened on some CPUs only does not replace the timer."""
    expected = home(derived("one_copy"), "copy_out")
    for status in ("partial", "unsupported"):
        raw = builders.raw_record("one_copy")
        raw["sampler"]["events"] = [event_of(raw, "cpu-clock")]
        half = with_second_event(raw, "ref-cycles", "cpu-clock", 3.0, status)
        half["samples"] = [
            r for r in half["samples"] if (r["event"], r["side"]) != ("ref-cycles", "receiver")
        ]
        full = derive(half)
        assert home(full, "copy_out") == expected
        assert full["verdict"]["valid"]


def test_a_timer_divides_time_if_cores_are_unlike() -> None:
    raw = with_second_event(builders.raw_record("one_copy", pmu=True), "cpu-clock", "cycles", 1 / 3)
    raw["sampler"]["events"] = [*raw["sampler"]["events"][1:]]
    for row in raw["samples"]:
        if (row["event"], row["side"]) == ("cycles", "sender") and row["category"] == "copy_in":
            row["weight"] *= 5
    full = derive(raw)
    assert home(full, "copy_in")["cpu_ns"] == home(derived("one_copy", pmu=True), "copy_in")["cpu_ns"]
    assert home(full, "copy_in")["cycles"] > 1.5 * home(derived("one_copy", pmu=True), "copy_in")["cycles"]


def test_events_without_samples_have_the_samplers_reason() -> None:
    raw = builders.raw_record("one_copy", pmu=True)
    raw["samples"] = [row for row in raw["samples"] if row["event"] != "LLC-load-misses"]
    event_of(raw, "LLC-load-misses").update(status="unsupported", reason="AMD's PMU has no such event")
    row = home(derive(raw), "copy_in")
    assert row["llc_misses"] is None and "AMD's PMU has no such event" in row["reasons"]["llc_misses"]
    assert row["reasons"]["instructions"].endswith("not sampled")


def test_events_without_a_pmu_are_null_with_a_reason() -> None:
    row = home(derived("one_copy"), "copy_in")
    for column in ("cycles", "instructions", "l1d_misses", "llc_misses"):
        assert row[column] is None
        assert "no PMU" in row["reasons"][column]


def test_time_without_samples_is_null_with_the_samplers_reason() -> None:
    raw = builders.raw_record("one_copy")
    raw["samples"] = []
    raw["sampler"]["events"][0] |= {"status": "unsupported", "reason": "perf_event_open: EACCES"}
    full = derive(raw)
    row = home(full, "copy_in")
    assert row["cpu_ns"] is None and "EACCES" in row["reasons"]["cpu_ns"]
    assert row["bytes"] == 29_100 * 65_536
    assert validate(full) == []
    assert {i["holds"] for i in full["identities"] if i["unit"] == "ns" or i["unit"] == "share"} == {None}


def test_counts_of_a_missing_hook_have_its_reason() -> None:
    raw = builders.raw_record("one_copy")
    missing = {"state": "missing", "how": None, "reason": "no such tracepoint"}
    builders.hook_of(raw, "copy_out_bytes").update(missing)
    full = derive(raw)
    row = next(r for r in rows(full, "copy_out") if r["context"] == "process")
    assert (row["bytes"], row["bytes_method"]) == (29_100 * 65_536, "derived")
    assert row["calls"] is None and "no such tracepoint" in row["reasons"]["calls"]
    assert next(i for i in full["identities"] if i["name"] == "received_split")["holds"] is None
    assert validate(full) == []


def test_a_hook_that_cannot_see_zero_copy_leaves_the_programs_count() -> None:
    raw = builders.raw_record("zero_copy")
    for row in raw["bytes"]:
        row |= {"zerocopy_calls": None, "zerocopy_bytes": None}
    full = derive(raw)
    assert home(full, "copy_in")["bytes"] == 0
    assert home(full, "copy_in")["bytes_method"] == "derived"
    blind = {i["name"] for i in full["identities"] if i["holds"] is None}
    assert blind == {"referenced_bytes", "zerocopy_calls"}
    assert validate(full) == []


def test_a_clock_without_softirq_time_gives_the_same_rows() -> None:
    """With CONFIG_IRQ_TIME_ACCOUNTING the CPU clock excludes softirqs, which are added from samples."""
    raw = builders.raw_record("one_copy")
    softirq = sum(r["weight"] for r in raw["samples"] if (r["side"], r["context"]) == ("sender", "softirq"))
    for segment in raw["run"]["segments"]:
        if segment["phase"] == "ledger":
            segment["sides"]["sender"]["process_cpu_ns"] -= softirq // 3
    builders.without_task_clock(raw)
    assert not all(i["holds"] for i in derive(raw)["identities"] if i["name"] == "sender_time")
    raw["machine"]["irq_time_accounting"] = True
    full = derive(raw)
    assert full["verdict"]["valid"], full["verdict"]["reasons"]
    assert home(full, "copy_in")["cpu_ns"] == pytest.approx(
        home(derived("one_copy"), "copy_in")["cpu_ns"], rel=0.01
    )


@settings(max_examples=20, deadline=None)
@given(st.data())
def test_rows_add_up_to_the_clock_for_any_samples(data: st.DataObject) -> None:
    """For any samples, the rows of a side add up to its CPU clock, and each row lies in its interval."""
    raw = builders.raw_record("one_copy")
    for row in raw["samples"]:
        row["samples"] = data.draw(st.integers(1, 5000))
        row["weight"] = row["samples"] * builders.PERIOD_NS
    full = derive(raw)
    for side, spent_ns in (("sender", 855_000_000), ("receiver", 540_000_000)):
        rows_of_side = [row for row in [*full["ledger"], *full["stages"]] if row["side"] == side]
        assert sum(row["cpu_ns"] for row in rows_of_side) == pytest.approx(spent_ns, abs=len(rows_of_side))
        for row in rows_of_side:
            if row["ci"] is not None:
                assert row["ci"]["low_ns"] - 1 <= row["cpu_ns"] <= row["ci"]["high_ns"] + 1
    every = [*full["ledger"], *full["stages"]]
    assert sum(row["share"] for row in every) == pytest.approx(1, abs=1e-4)
    assert store.serialise(derive(full)) == store.serialise(full)
