# SPDX-License-Identifier: GPL-2.0-only
"""The tier of a run (exact or sampled), its plan, and the losses of its hooks."""

import argparse
from dataclasses import replace
from typing import Any

import pytest
from builders import raw_record
from builders.documents import derive, typed_whole, validate
from builders.exact import with_functions
from builders.kernel import hook_row
from copyscope.base.errors import UsageError
from copyscope.plan.arguments import parser
from copyscope.plan.options import TrafficOptions, check_usage
from copyscope.plan.run_plan import RunPlan, traffic_plan
from copyscope.plan.schedule import (
    PHASE_WEIGHTS,
    SAMPLED,
    merge_phases,
    parse_instruments,
    phase_probes,
    separate_bytes,
)
from copyscope.plan.tier import choose_tier
from copyscope.record.segments import why_not
from copyscope.show.evidence import hook_lines, loss_lines
from copyscope.show.ledger_table import account_lines, exact_lines

REFUSED = {"state": "refused", "how": None, "reason": "fentry: load: Operation not permitted"}


def plan_of(args: argparse.Namespace, instruments: tuple[str, ...] | None = None) -> RunPlan:
    return traffic_plan(args, instruments or parse_instruments(args.instruments), 1, in_pieces=False)


def hook(name: str, **changes: Any) -> dict[str, Any]:
    usual = {"symbol": f"tcp_{name}", "state": "available", "required": name in ("send", "receive")}
    return hook_row(name, **{**usual, **changes})


def test_a_run_is_exact_if_required_hooks_attach_and_missing_hooks_are_listed() -> None:
    rows = [
        hook("send"),
        hook("receive", how="kprobe"),
        hook("pin", **REFUSED),
        hook("reap", state="missing"),
    ]
    tier = choose_tier(True, [*rows, hook("other", instrument="calls", **REFUSED)], by_name=True)
    assert tier.exact and tier.name == "exact"
    assert tier.reason == "function hooks: 2 by fentry, 1 by kprobe; not hooked: pin, reap"


def test_auto_uses_kprobe_multi_if_fentry_is_refused() -> None:
    tier = choose_tier(True, [hook("send", how="kprobe.multi"), hook("receive", how="kprobe.multi")])
    assert tier.exact and tier.reason == "function hooks: 2 by kprobe.multi"


@pytest.mark.parametrize("root", ["send", "receive"])
def test_kprobes_are_used_only_if_functions_are_requested(root: str) -> None:
    rows = [hook(name, how="kprobe" if name == root else "fentry") for name in ("send", "receive")]
    tier = choose_tier(True, rows)
    assert not tier.exact and f"tcp_{root} only by kprobe" in tier.reason
    assert choose_tier(True, rows, by_name=True).exact


@pytest.mark.parametrize("root", ["send", "receive"])
def test_a_run_without_a_required_hook_is_sampled_with_the_reason(root: str) -> None:
    rows = [hook(name, **(REFUSED if name == root else {})) for name in ("send", "receive", "pin")]
    tier = choose_tier(True, rows)
    assert not tier.exact and tier.name == "sampled"
    assert tier.reason == (
        f"function hooks: refused by this kernel (tcp_{root}: fentry: load: Operation not permitted)"
    )


@pytest.mark.parametrize(
    ("state", "reason"),
    [
        ("refused", "fentry: load: Operation not permitted; kprobe: this kernel has no kprobes"),
        ("missing", "this kernel has no kprobes"),
        ("missing", "this kernel has no BTF"),
        ("missing", "/proc/kallsyms has no addresses (kernel.kptr_restrict)"),
        ("refused", "fentry: attach: not supported here (ENOTSUPP); kprobe: attach: Operation not permitted"),
    ],
)
def test_the_reason_names_what_the_kernel_lacks(state: str, reason: str) -> None:
    rows = [hook(name, state=state, how=None, reason=reason) for name in ("send", "receive")]
    for by_name in (False, True):
        tier = choose_tier(True, rows, by_name=by_name)
        assert not tier.exact
        assert tier.reason == f"function hooks: refused by this kernel (tcp_send: {reason})"


def test_a_requested_copy_hook_is_counted_or_reported_missing() -> None:
    rows = [hook("send"), hook("receive"), hook("copy_in_call", how="call-site")]
    assert choose_tier(True, rows).reason == "function hooks: 1 by call-site, 2 by fentry"
    missing = hook("copy_in_call", state="missing", how=None, reason="/proc/kcore: Operation not permitted")
    tier = choose_tier(True, [hook("send"), hook("receive"), hook("copy_in"), missing])
    assert tier.reason == "function hooks: 3 by fentry; not hooked: copy_in_call"


def test_the_plan_passes_the_copy_hook_to_the_collector() -> None:
    args = parser().parse_args(["--copy-in", "call-site", "--instruments", "functions"])
    assert plan_of(args).copy_in == "call-site"


@pytest.mark.parametrize("in_pieces", [False, True])
def test_the_plan_passes_sends_in_pieces_to_the_collector(in_pieces: bool) -> None:
    traffic = TrafficOptions((), (), {"in_pieces": in_pieces})
    plan = traffic_plan(parser().parse_args([]), SAMPLED, 1, in_pieces=traffic.in_pieces)
    assert plan.sends_in_pieces is in_pieces


def test_only_functions_that_this_traffic_can_reach_are_hooked() -> None:
    traffic = TrafficOptions((), (), {"moves": ["zerocopy", "map"]})
    args = parser().parse_args([])
    plan = traffic_plan(args, parse_instruments("auto"), 1, in_pieces=False, moves=traffic.moves)
    argv = plan.collector()
    assert argv[argv.index("--moves") + 1] == "zerocopy,map"
    # Without function hooks, the collector need not know which functions to leave out.
    assert plan.fallback is not None and "--moves" not in plan.fallback.collector()


def test_a_required_tracepoint_decides_like_a_required_function() -> None:
    rows = [hook("send"), hook("receive"), hook("switch", required=True, **REFUSED)]
    assert "tcp_switch: fentry: load" in choose_tier(True, rows).reason
    assert not choose_tier(True, rows).exact
    assert not choose_tier(True, []).exact


@pytest.mark.parametrize(("tier", "valid"), [("exact", False), ("sampled", True)])
def test_the_verdict_of_a_sampled_run_ignores_function_hooks(tier: str, valid: bool) -> None:
    raw = with_functions(raw_record("one_copy", phases=("unprobed", "ledger", "calls", "functions")))
    if tier == "sampled":
        raw = raw_record("one_copy")
    raw["run"] |= {"tier": tier, "tier_reason": "of this test"}
    raw["hooks"].append(hook("send", **REFUSED))
    record = derive(raw)
    assert record["verdict"]["valid"] is valid
    assert (
        "tcp_send refused" in "".join(map(str, hook_lines(typed_whole(record), 200, verbose=False)))
    ) is not valid


def test_the_reason_says_that_functions_were_not_requested() -> None:
    assert choose_tier(False, [hook("send"), hook("receive")]).reason == "function hooks: not requested"


def test_auto_has_a_plan_for_both_tiers() -> None:
    args = parser().parse_args([])
    plan = plan_of(args)
    assert plan.functions and plan.fallback is not None and not plan.fallback.functions
    args.instruments = ",".join(SAMPLED)
    assert plan_of(args, SAMPLED) == replace(plan.fallback, fallback=None)


@pytest.mark.parametrize(
    ("options", "ways"),
    [
        (
            [],
            [
                ("bytes", "calls", "functions", "sampler", "unarmed"),
                ("bytes", "calls", "sampler"),
                ("sampler",),
            ],
        ),
        (["--messages", "23"], [("bytes", "calls", "sampler"), ("sampler",)]),
        (["--instruments", "sampler"], [("bytes", "sampler"), ("sampler",)]),
        (["--instruments", "counters"], [("bytes",), ()]),
        (["--instruments", "calls"], [("calls",)]),
    ],
)
def test_the_plan_falls_back_if_instruments_were_not_named(
    options: list[str], ways: list[tuple[str, ...]]
) -> None:
    args = parser().parse_args(options)
    plan: RunPlan | None = plan_of(args)
    instruments = []
    while plan is not None:
        instruments.append(tuple(sorted({name for probes in plan.probes.values() for name in probes})))
        plan = plan.fallback
    assert instruments == ways


def test_an_instrument_is_missing_without_a_required_hook() -> None:
    missing = {"instrument": "calls", "symbol": "sys_enter", "state": "missing", "reason": "no BTF"}
    rows = [hook("send", **REFUSED, required=True), hook("spare", **{**missing, "symbol": "none"})]
    rows.append(hook("enter", **missing, required=True))
    assert why_not(("functions", "bytes"), rows) is None
    assert why_not(("bytes", "calls"), rows) == "sys_enter: missing: no BTF"


def test_auto_does_not_mix_samples_and_function_hooks_in_one_segment() -> None:
    args = parser().parse_args(["--messages", "23"])
    plan = plan_of(args)
    assert not plan.functions and plan.fallback is not None and not plan.fallback.functions


def test_named_functions_have_no_fallback() -> None:
    args = parser().parse_args(["--instruments", "functions"])
    assert plan_of(args).fallback is None


def exact_record(**changes: Any) -> dict[str, Any]:
    """Return a record with more hooks of the same categories, a helper hook, and one call in four timed."""
    raw = with_functions(
        raw_record("zero_copy", phases=("unprobed", "ledger", "functions")), gate=4, **changes
    )
    raw["hooks"] += [
        hook("pin_record", category="pin", state="attached"),
        hook("push", category=None, state="attached"),
    ]
    return raw


def sum_rows(rows: list[dict[str, Any]], key: str, category: str | None = None) -> int:
    return sum(row[key] for row in rows if category in (None, row.get("category")))


# Loss counter -> (section of `functions`, key, category) of the total that the loss is compared with.
COUNTED_BY = {
    "functions_counter_unreadable": ("cells", "timed_calls", None),
    "functions_broken": ("cells", "calls", None),
    "functions_too_deep": ("cells", "calls", None),
    "functions_task_map_full": ("cells", "calls", None),
    "recursion_copy_in": ("cells", "calls", "copy_in"),
    "missed_deferred": ("cells", "calls", "deferred"),
    "missed_pin": ("cells", "calls", "pin"),
    # These hooks delimit copies and do not count their own calls.
    "recursion_receive": ("cells", "calls", None),
    "recursion_push": ("cells", "calls", None),
    "missed_zerocopy_use": ("cells", "calls", None),
}


@pytest.mark.parametrize("name", COUNTED_BY)
def test_losses_of_one_in_a_thousand_are_reported(name: str) -> None:
    raw = exact_record()
    rows, key, category = COUNTED_BY[name]
    total = sum_rows(raw["functions"][rows], key, category)
    raw["loss"][name] = total // 2000
    assert derive(raw)["verdict"]["valid"]
    raw["loss"][name] = total // 500 + 1
    record = derive(raw)
    assert record["loss"][name]["of"] == total + total // 500 + 1
    assert any(name in reason for reason in record["verdict"]["reasons"])


@pytest.mark.parametrize("impl", ["one_copy", "two_copy", "zero_copy", "sendfile"])
def test_records_of_both_tiers_have_the_same_keys(impl: str) -> None:
    sampled = raw_record(impl, phases=("unprobed", "ledger", "calls"))
    sampled["run"] |= {"tier": "sampled", "tier_reason": "the sampler: no function can be hooked"}
    hooked = with_functions(raw_record(impl, phases=("unprobed", "ledger", "calls", "functions")))
    sampled_record, exact_record = derive(sampled), derive(hooked)
    assert list(sampled_record) == list(exact_record) and set(sampled_record["run"]) == set(
        exact_record["run"]
    )
    for name, key in (("ledger", "account"), ("stages", "stage")):
        rows = [
            [(row["side"], row["context"], row[key]) for row in record[name]]
            for record in (sampled_record, exact_record)
        ]
        assert rows[0] == rows[1]
        assert len({frozenset(row) for record in (sampled_record, exact_record) for row in record[name]}) == 1
    columns = [
        account_lines(typed_whole(record), 400, verbose=True)[2].plain.split()
        for record in (sampled_record, exact_record)
    ]
    assert columns[0] == columns[1] and columns[0][0] == "copy"
    # Rows of hooks and rows of samples have the same units.
    numbers = {"bytes", "calls", "cpu_ns", "ns_per_kib", "share", "method", "ci", "reasons"}
    numbers |= {"cycles", "instructions", "l1d_misses", "llc_misses"}
    assert sampled_record["exact"] == [] and exact_record["exact"]
    assert all(numbers <= set(row) for row in [*exact_record["exact"], *sampled_record["ledger"]])


def test_zero_copy_sends_without_a_slot_count_against_finished_sends() -> None:
    raw = exact_record()
    raw["loss"]["functions_zerocopy_map_full"] = 2
    ended = raw["functions"]["completions"][0]
    loss = derive(raw)["loss"]["functions_zerocopy_map_full"]
    assert loss["of"] == ended["copied"] + ended["zerocopied"] + 2


def test_losses_that_the_kernel_does_not_count_are_unknown() -> None:
    raw = exact_record()
    raw["loss"] = {
        "functions_broken": 0,
        "recursion_send": {"count": None, "reason": "this kernel does not count"},
        "missed_send": {"count": None, "reason": "this kernel does not count"},
    }
    record = derive(raw)
    assert validate(record) == []
    unknown = {"count": None, "of": None, "share": None, "reason": "this kernel does not count"}
    assert record["loss"]["missed_send"] == unknown
    assert derive(record)["loss"] == record["loss"]
    assert record["verdict"]["valid"]
    text = "\n".join(map(str, loss_lines(typed_whole(record), 200, verbose=True)))
    assert "none; 1 loss counter read, zero" in text
    assert "n/a: 2 loss counters: this kernel does not count (recursion_send, missed_send)" in text


def test_many_stopped_counter_readings_are_reported() -> None:
    raw = exact_record()
    timed = sum_rows(raw["functions"]["cells"], "timed_calls")
    for count, valid in ((0, True), (timed // 25, True), (timed // 15, False)):
        raw["loss"]["functions_look_stopped"] = count
        record = derive(raw)
        text = "\n".join(map(str, exact_lines(typed_whole(record), 300)))
        assert (f"left out: {count:,} of {timed + count:,} timed copies" in text) == (count > 0)
        assert record["verdict"]["valid"] is valid


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--count", "page-faults", "--instruments", "sampler"], "no function is hooked"),
        (["--count", "teapots", "--instruments", "functions"], "teapots"),
    ],
)
def test_an_event_that_cannot_be_counted_is_refused(options: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        check_usage(parser().parse_args(options))


def test_bytes_are_counted_in_separate_segments_except_in_a_single_segment_run() -> None:
    phases = phase_probes(("counters", "calls", "sampler"))
    apart = separate_bytes(phases)
    assert (apart["ledger"], apart["bytes"]) == (("sampler",), ("bytes",))
    assert set(apart) == {"unprobed", "ledger", "calls", "bytes"} <= set(PHASE_WEIGHTS)
    assert separate_bytes(phase_probes(("counters",)))["ledger"] == ()
    assert "bytes" not in separate_bytes(phase_probes(("calls",)))
    assert merge_phases(phases) == {"ledger+calls": ("bytes", "sampler", "calls")}
