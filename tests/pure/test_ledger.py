"""The ledger: where bytes, time and events go, on invented records whose truth is known.

Goldens in data/ledger are the derived sections of three runs; COPYSCOPE_GOLDEN=1 records them anew.
"""

import copy
import os
from pathlib import Path
from typing import Any

import builders
import pytest
from copyscope.judge import metrics
from copyscope.ledger.derive import derive
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
# Copied late; with events and nothing copied; a timed gather.
GOLDEN = ("zero_copy_veth", "zero_copy_nics_pmu", "two_copy_veth")
Record = dict[str, Any]


def derived(impl: str, **options: Any) -> Record:
    return derive(builders.raw_record(impl, **options))


def rows(full: Record, account: str) -> list[Record]:
    return [row for row in full["ledger"] if row["account"] == account]


def home(full: Record, account: str) -> Record:
    """The row on which an account's bytes stand."""
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
    assert path.read_bytes() == data


@pytest.mark.parametrize("name", sorted(SCENARIOS))
def test_all_holds_on_a_true_record_and_nothing_raw_is_touched(name: str) -> None:
    raw = builders.raw_record(**SCENARIOS[name])
    before = copy.deepcopy(raw)
    full = derive(raw)
    assert raw == before
    assert store.serialise(derive(full)) == store.serialise(full)
    assert [i for i in full["identities"] if i["holds"] is not True] == []
    assert full["verdict"]["valid"], full["verdict"]["reasons"]
    assert store.validate(full) == []
    shares = [row["share"] for row in [*full["ledger"], *full["stages"]]]
    assert sum(shares) == pytest.approx(1, abs=1e-4)


def test_bytes_of_a_copied_send() -> None:
    full = derived("one_copy")
    sent = 29_100 * 65_536  # messages of the three ledger segments
    assert home(full, "copy_in")["bytes"] == sent
    assert home(full, "copy_in")["bytes_method"] == "exact"
    assert home(full, "copy_out")["bytes"] == sent
    assert [home(full, a)["bytes"] for a in ("gather", "pin", "deferred", "silent", "completion")] == [0] * 5


def test_bytes_of_a_zero_copy_send_that_was_copied_later() -> None:
    full = derived("zero_copy")
    sent = home(full, "pin")["bytes"]
    assert sent == home(full, "copy_out")["bytes"] > 0
    assert (home(full, "deferred")["bytes"], home(full, "deferred")["bytes_method"]) == (sent, "reported")
    assert home(full, "copy_in")["bytes"] == 0
    assert full["zerocopy"]["bytes_zero_copy"] == 0
    assert home(full, "completion")["calls"] == home(full, "pin")["calls"] == home(full, "deferred")["calls"]


def test_bytes_that_the_driver_copied_silently() -> None:
    full = derived("zero_copy", kind="veth-xdp")
    assert home(full, "silent")["bytes"] == home(full, "pin")["bytes"] > 0
    assert home(full, "silent")["bytes_method"] == "derived"
    assert home(full, "deferred")["bytes"] == 0
    assert full["zerocopy"]["bytes_zero_copy"] == 0
    assert full["zerocopy"]["cause"]["code"] == "xdp_native"


def test_bytes_that_nothing_copied() -> None:
    full = derived("zero_copy", kind="nics")
    # its invented samples hold a deferred copy, but no completion reports one: bytes follow the report
    assert home(full, "deferred")["bytes"] == home(full, "silent")["bytes"] == 0
    assert full["zerocopy"]["bytes_zero_copy"] == home(full, "pin")["bytes"]
    assert full["zerocopy"]["cause"] is None


@pytest.mark.parametrize(("silent_samples", "copied"), [(2, False), (900, True)])
def test_a_stray_sample_does_not_make_all_bytes_silently_copied(silent_samples: int, copied: bool) -> None:
    """No core copies faster than 100 bytes per ns: two samples cannot have moved 1.5 GB, 900 can."""
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


def test_tcp_refers_to_pages_whatever_the_device_can_do() -> None:
    """Since 4.17 TCP always has GSO, and with it gathers (sk_setup_caps()): the packet is copied late."""
    full = derived("zero_copy", scatter_gather=False)
    assert home(full, "copy_in")["bytes"] == 0
    assert home(full, "pin")["bytes"] == home(full, "deferred")["bytes"] > 0
    assert full["zerocopy"]["cause"]["code"] == "no_offload"
    assert all(i["holds"] is not False for i in full["identities"])


@pytest.mark.parametrize("receiver", ["trunc", "splice"])
def test_bytes_that_were_thrown_away_or_spliced_are_not_copied_out(receiver: str) -> None:
    full = derived("one_copy", receiver=receiver)
    assert home(full, "copy_out")["bytes"] == 0
    assert full["verdict"]["valid"]


def test_mapped_pages_are_an_account_and_not_copied_out() -> None:
    full = derived("zero_copy", receiver="map")
    mapped, copied = home(full, "mapped"), home(full, "copy_out")
    assert mapped["bytes"] == 15 * copied["bytes"] > 0
    assert mapped["bytes_method"] == "exact" and mapped["calls"] == mapped["bytes"] // (15 * 4096)
    assert mapped["bytes"] + copied["bytes"] <= full["rx_bytes"]
    assert full["verdict"]["valid"]
    assert not any(row["account"] == "mapped" for row in derived("zero_copy")["ledger"])


def test_time_is_the_share_of_samples_times_the_exact_clock() -> None:
    full = derived("one_copy")
    row = home(full, "copy_in")
    assert full["sides"]["sender"]["cpu_ns"] == 3 * 285_000_000
    assert row["cpu_ns"] == pytest.approx(
        row["samples"] / full["sides"]["sender"]["samples"] * 855_000_000, abs=1
    )
    assert row["ci"]["low_ns"] < row["cpu_ns"] < row["ci"]["high_ns"]
    assert row["ns_per_kib"] == pytest.approx(row["cpu_ns"] / (29_100 * 64), abs=0.001)
    assert row["method"] == "sampled"


def test_gather_is_the_strategys_timer_and_leaves_the_user_row() -> None:
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


def test_rows_may_miss_the_cpu_time_by_their_rounding_alone() -> None:
    """More user time was sampled than gathering took: a thousandth of 870 ms, and a nanosecond a row."""
    full = derived("two_copy")
    rows_of = [row for row in [*full["ledger"], *full["stages"]] if row["side"] == "sender"]
    (found,) = (i for i in full["identities"] if i["name"] == "sender_rows")
    assert found["right"] == 870_000_000 and found["tolerance"] == 870_000 + len(rows_of)


def test_other_side_counts_in_its_own_weight() -> None:
    full = derived("one_copy")
    weight = sum(row["weight"] for row in full["samples"] if row["side"] == "other")
    assert full["sides"]["other"]["cpu_ns"] == weight
    assert {row["context"] for row in full["stages"] if row["side"] == "other"} == {"softirq"}


def with_work_of_others(raw: Record, **tie: str | None) -> Record:
    """With somebody's zero-copy run beside: 400 ms of copies on the time of ksoftirqd."""
    row: Record = {"side": "other", "context": "softirq", "event": "cpu-clock", "kind": "account"}
    row |= {"category": "deferred", "symbol": "skb_copy_ubufs", "samples": 1_600, "weight": 400_000_000}
    row["weight_squared"] = 1_600 * 250_000.0**2
    raw["samples"].append(row | tie)
    return raw


@pytest.mark.parametrize("tie", [{"tie": None}, {}], ids=["of others", "an older record"])
def test_work_that_is_not_tied_to_the_run_is_in_no_sum(tie: dict[str, None]) -> None:
    """All that a run says beside somebody else's is what it says alone, but for one line."""
    alone = derived("one_copy")
    beside = derive(with_work_of_others(builders.raw_record("one_copy"), **tie))
    assert beside["sides"]["elsewhere"] == {
        **alone["sides"]["elsewhere"],
        "cpu_ns": 400_000_000,
        "samples": 1_600,
    }
    for key in ("ledger", "stages", "verdict", "overhead", "zerocopy"):
        assert beside[key] == alone[key], key
    assert {**beside["sides"], "elsewhere": None} == {**alone["sides"], "elsewhere": None}
    one, other = metrics.typed_runs((alone, beside))
    for name in metrics.METRICS:
        assert metrics.read(other, name) == metrics.read(one, name), name


def test_work_on_a_packet_of_the_run_is_in_its_ledger() -> None:
    full = derive(with_work_of_others(builders.raw_record("one_copy"), tie="packet"))
    (row,) = (row for row in rows(full, "deferred") if row["side"] == "other")
    assert row["cpu_ns"] == 400_000_000 and full["sides"]["elsewhere"]["cpu_ns"] == 0
    alone = derived("one_copy")["sides"]["other"]["cpu_ns"]
    assert full["sides"]["other"]["cpu_ns"] == alone + 400_000_000


def test_why_nothing_is_tied_is_said() -> None:
    raw = builders.raw_record("one_copy")
    builders.hook_of(raw, "packet_owner").update(state="missing", how=None, reason="no BTF")
    assert "netif_receive_skb: missing: no BTF" in derive(raw)["sides"]["elsewhere"]["cause"]
    # As the collector calls one that was loaded and that no segment attached.
    builders.hook_of(raw, "packet_owner").update(state="available", reason=None)
    assert derive(raw)["sides"]["elsewhere"]["cause"].startswith("packets of others")
    raw["hooks"] = [hook for hook in raw["hooks"] if hook["id"] != "packet_owner"]
    assert "made before" in derive(raw)["sides"]["elsewhere"]["cause"]


def test_events_follow_their_own_samples() -> None:
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


def sampled_also(raw: Record, name: str, of: str, weight: float, status: str = "sampled") -> Record:
    """The record, in which one more event was sampled where another was, with other weights."""
    rows = [row for row in raw["samples"] if row["event"] == of]
    changed = {"weight": weight, "weight_squared": weight**2}
    raw["samples"] += [
        {**row, "event": name} | {key: row[key] * times for key, times in changed.items()} for row in rows
    ]
    raw["sampler"]["events"] += [{"name": name, "unit": "cycles", "status": status, "reason": None}]
    return raw


def test_ref_cycles_show_time_and_cycles_stay_a_column() -> None:
    """Where the receiver's copy ran on a slow core: half of its cycles, and all of its time."""
    whole = home(derived("one_copy", pmu=True), "copy_out")
    raw = sampled_also(builders.raw_record("one_copy", pmu=True), "ref-cycles", "cycles", 0.5)
    for row in raw["samples"]:
        if (row["event"], row["category"]) == ("cycles", "copy_out"):
            row["weight"] /= 2
    full = derive(raw)
    row = home(full, "copy_out")
    assert row["cpu_ns"] == whole["cpu_ns"] and row["samples"] == whole["samples"]
    assert row["cycles"] < 0.7 * whole["cycles"]
    # What is held against the cycle counter is what was sampled of cycles.
    check = next(one for one in full["identities"] if one["name"] == "sender_time")
    assert check["holds"] and check["unit"] == "cycles" and "cycle counter" in check["what"]


def test_where_ref_cycles_are_sampled_instead_of_cycles_they_divide_both() -> None:
    """All cores are alike there. Their weights are ns, so they are held against the CPU clock."""
    expected = derived("one_copy", pmu=True)
    raw = builders.raw_record("one_copy", pmu=True)
    for row in raw["samples"]:
        if row["event"] == "cycles":
            # Three cycles in a ns.
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
    check = next(one for one in full["identities"] if one["name"] == "sender_time")
    assert check["holds"] and check["unit"] == "ns" and "cycle counter" not in check["what"]
    # That most of the samples are lost is seen, in a guest too.
    for row in raw["samples"]:
        if row["event"] == "ref-cycles" and row["side"] == "sender":
            row["weight"] *= 0.4
    check = next(one for one in derive(raw)["identities"] if one["name"] == "sender_time")
    assert check["holds"] is False


def test_time_comes_from_events_that_were_sampled_on_all_cpus() -> None:
    """A few samples of an event that opened on some CPUs do not win over the timer."""
    expected = home(derived("one_copy"), "copy_out")
    for status in ("partial", "unsupported"):
        raw = builders.raw_record("one_copy")
        raw["sampler"]["events"] = [event_of(raw, "cpu-clock")]
        half = sampled_also(raw, "ref-cycles", "cpu-clock", 3.0, status)
        half["samples"] = [
            r for r in half["samples"] if (r["event"], r["side"]) != ("ref-cycles", "receiver")
        ]
        full = derive(half)
        assert home(full, "copy_out") == expected
        assert full["verdict"]["valid"]


def test_beside_cycles_of_unlike_cores_a_timer_shows_time() -> None:
    raw = sampled_also(builders.raw_record("one_copy", pmu=True), "cpu-clock", "cycles", 1 / 3)
    raw["sampler"]["events"] = [*raw["sampler"]["events"][1:]]
    for row in raw["samples"]:
        if (row["event"], row["side"]) == ("cycles", "sender") and row["category"] == "copy_in":
            row["weight"] *= 5
    full = derive(raw)
    assert home(full, "copy_in")["cpu_ns"] == home(derived("one_copy", pmu=True), "copy_in")["cpu_ns"]
    assert home(full, "copy_in")["cycles"] > 1.5 * home(derived("one_copy", pmu=True), "copy_in")["cycles"]


def test_what_was_not_sampled_says_why_by_the_sampler() -> None:
    raw = builders.raw_record("one_copy", pmu=True)
    raw["samples"] = [row for row in raw["samples"] if row["event"] != "LLC-load-misses"]
    event_of(raw, "LLC-load-misses").update(status="unsupported", reason="AMD's PMU has no such event")
    row = home(derive(raw), "copy_in")
    assert row["llc_misses"] is None and "AMD's PMU has no such event" in row["reasons"]["llc_misses"]
    assert row["reasons"]["instructions"].endswith("not sampled")


def test_no_pmu_is_null_with_the_reason_and_never_zero() -> None:
    row = home(derived("one_copy"), "copy_in")
    for column in ("cycles", "instructions", "l1d_misses", "llc_misses"):
        assert row[column] is None
        assert "no PMU" in row["reasons"][column]


def test_without_samples_time_is_null_with_the_samplers_reason() -> None:
    raw = builders.raw_record("one_copy")
    raw["samples"] = []
    raw["sampler"]["events"][0] |= {"status": "unsupported", "reason": "perf_event_open: EACCES"}
    full = derive(raw)
    row = home(full, "copy_in")
    assert row["cpu_ns"] is None and "EACCES" in row["reasons"]["cpu_ns"]
    assert row["bytes"] == 29_100 * 65_536
    assert store.validate(full) == []
    assert {i["holds"] for i in full["identities"] if i["unit"] == "ns" or i["unit"] == "share"} == {None}


def test_a_hook_that_is_missing_leaves_its_reason() -> None:
    raw = builders.raw_record("one_copy")
    missing = {"state": "missing", "how": None, "reason": "no such tracepoint"}
    builders.hook_of(raw, "copy_out_bytes").update(missing)
    full = derive(raw)
    row = next(r for r in rows(full, "copy_out") if r["context"] == "process")
    assert (row["bytes"], row["bytes_method"]) == (29_100 * 65_536, "derived")
    assert row["calls"] is None and "no such tracepoint" in row["reasons"]["calls"]
    assert next(i for i in full["identities"] if i["name"] == "received_split")["holds"] is None
    assert store.validate(full) == []


def test_a_hook_blind_for_zero_copy_takes_the_programs_count() -> None:
    raw = builders.raw_record("zero_copy")
    for row in raw["bytes"]:
        row |= {"zerocopy_calls": None, "zerocopy_bytes": None}
    full = derive(raw)
    assert home(full, "copy_in")["bytes"] == 0
    assert home(full, "copy_in")["bytes_method"] == "derived"
    blind = {i["name"] for i in full["identities"] if i["holds"] is None}
    assert blind == {"referenced_bytes", "zerocopy_calls"}
    assert store.validate(full) == []


def test_interrupt_time_outside_of_the_process_clock() -> None:
    """With CONFIG_IRQ_TIME_ACCOUNTING the CPU clock leaves softirq out; nothing else may move by that."""
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
def test_any_samples_share_out_all_of_the_time(data: st.DataObject) -> None:
    """However the samples fall, the rows of a side add up to its CPU clock and each lies in its interval."""
    raw = builders.raw_record("one_copy")
    for row in raw["samples"]:
        row["samples"] = data.draw(st.integers(1, 5000))
        row["weight"] = row["samples"] * builders.PERIOD_NS
    full = derive(raw)
    for side, spent_ns in (("sender", 855_000_000), ("receiver", 540_000_000)):
        found = [row for row in [*full["ledger"], *full["stages"]] if row["side"] == side]
        assert sum(row["cpu_ns"] for row in found) == pytest.approx(spent_ns, abs=len(found))
        for row in found:
            if row["ci"] is not None:
                assert row["ci"]["low_ns"] - 1 <= row["cpu_ns"] <= row["ci"]["high_ns"] + 1
    every = [*full["ledger"], *full["stages"]]
    assert sum(row["share"] for row in every) == pytest.approx(1, abs=1e-4)
    assert store.serialise(derive(full)) == store.serialise(full)
