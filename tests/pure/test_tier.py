"""Which tier a run is of, and the losses of its hooks."""

import argparse
from dataclasses import replace
from typing import Any

import pytest
from builders import raw_record
from builders.exact import with_functions
from builders.kernel import hook_row
from copyscope.errors import UsageError
from copyscope.ledger.derive import derive
from copyscope.plan.arguments import parser
from copyscope.plan.instruments import SAMPLED, all_at_once, bytes_apart, parse_instruments, phase_probes
from copyscope.plan.options import Traffic, check_usage
from copyscope.plan.run_plan import RunPlan, traffic_plan
from copyscope.plan.schedule import PHASE_WEIGHTS
from copyscope.plan.tier import choose_tier
from copyscope.record import store
from copyscope.record.check import typed_whole
from copyscope.record.hooks import why_not
from copyscope.show.evidence import hook_lines, loss_lines
from copyscope.show.exact_table import exact_lines
from copyscope.show.ledger_table import account_lines

REFUSED = {"state": "refused", "how": None, "reason": "fentry: load: Operation not permitted"}


def made(args: argparse.Namespace, instruments: tuple[str, ...] | None = None) -> RunPlan:
    return traffic_plan(args, instruments or parse_instruments(args.instruments), 1, in_pieces=False)


def hook(name: str, **changes: Any) -> dict[str, Any]:
    usual = {"symbol": f"tcp_{name}", "state": "available", "required": name in ("send", "receive")}
    return hook_row(name, **{**usual, **changes})


def test_roots_that_attach_make_it_exact_and_what_is_missing_is_named() -> None:
    rows = [
        hook("send"),
        hook("receive", how="kprobe"),
        hook("pin", **REFUSED),
        hook("reap", state="missing"),
    ]
    tier = choose_tier(True, [*rows, hook("other", instrument="calls", **REFUSED)], by_name=True)
    assert tier.exact and tier.name == "exact"
    assert tier.reason == "function hooks: 2 by fentry, 1 by kprobe; not hooked: pin, reap"


def test_where_fentry_is_refused_auto_takes_kprobe_multi() -> None:
    tier = choose_tier(True, [hook("send", how="kprobe.multi"), hook("receive", how="kprobe.multi")])
    assert tier.exact and tier.reason == "function hooks: 2 by kprobe.multi"


@pytest.mark.parametrize("root", ["send", "receive"])
def test_kprobes_are_taken_only_by_name(root: str) -> None:
    rows = [hook(name, how="kprobe" if name == root else "fentry") for name in ("send", "receive")]
    tier = choose_tier(True, rows)
    assert not tier.exact and f"tcp_{root} only by kprobe" in tier.reason
    assert choose_tier(True, rows, by_name=True).exact


@pytest.mark.parametrize("root", ["send", "receive"])
def test_without_a_root_it_is_sampled_with_the_reason(root: str) -> None:
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
def test_what_this_kernel_lacks_is_in_the_reason(state: str, reason: str) -> None:
    rows = [hook(name, state=state, how=None, reason=reason) for name in ("send", "receive")]
    for by_name in (False, True):
        tier = choose_tier(True, rows, by_name=by_name)
        assert not tier.exact
        assert tier.reason == f"function hooks: refused by this kernel (tcp_send: {reason})"


def test_the_way_of_the_copy_is_counted_and_missed_when_asked_for_in_vain() -> None:
    rows = [hook("send"), hook("receive"), hook("copy_in_call", how="call-site")]
    assert choose_tier(True, rows).reason == "function hooks: 1 by call-site, 2 by fentry"
    in_vain = hook("copy_in_call", state="missing", how=None, reason="/proc/kcore: Operation not permitted")
    tier = choose_tier(True, [hook("send"), hook("receive"), hook("copy_in"), in_vain])
    assert tier.reason == "function hooks: 3 by fentry; not hooked: copy_in_call"


def test_the_way_of_the_copy_is_in_the_plan() -> None:
    args = parser().parse_args(["--copy-in", "call-site", "--instruments", "functions"])
    assert made(args).copy_in == "call-site"


@pytest.mark.parametrize("in_pieces", [False, True])
def test_the_collector_knows_of_calls_that_pass_the_socket_in_pieces(in_pieces: bool) -> None:
    traffic = Traffic((), (), {"in_pieces": in_pieces})
    plan = traffic_plan(parser().parse_args([]), SAMPLED, 1, in_pieces=traffic.in_pieces)
    assert plan.sends_in_pieces is in_pieces


def test_only_functions_that_this_traffic_can_pass_are_hooked() -> None:
    traffic = Traffic((), (), {"moves": ["zerocopy", "map"]})
    args = parser().parse_args([])
    plan = traffic_plan(args, parse_instruments("auto"), 1, in_pieces=False, moves=traffic.moves)
    argv = plan.collector()
    assert argv[argv.index("--moves") + 1] == "zerocopy,map"
    # Where none is hooked there is nothing to leave out.
    assert plan.otherwise is not None and "--moves" not in plan.otherwise.collector()


def test_a_tracepoint_that_the_clock_needs_is_as_good_as_a_root() -> None:
    rows = [hook("send"), hook("receive"), hook("switch", required=True, **REFUSED)]
    assert "tcp_switch: fentry: load" in choose_tier(True, rows).reason
    assert not choose_tier(True, rows).exact
    assert not choose_tier(True, []).exact


@pytest.mark.parametrize(("tier", "valid"), [("exact", False), ("sampled", True)])
def test_a_run_without_function_hooks_is_not_judged_by_them(tier: str, valid: bool) -> None:
    raw = with_functions(raw_record("one_copy", phases=("unprobed", "ledger", "calls", "functions")))
    if tier == "sampled":
        raw = raw_record("one_copy")
    raw["run"] |= {"tier": tier, "tier_reason": "of this test"}
    raw["hooks"].append(hook("send", **REFUSED))
    made = derive(raw)
    assert made["verdict"]["valid"] is valid
    assert (
        "tcp_send refused" in "".join(map(str, hook_lines(typed_whole(made), 200, verbose=False)))
    ) is not valid


def test_not_asked_for_is_not_refused() -> None:
    assert choose_tier(False, [hook("send"), hook("receive")]).reason == "function hooks: not asked for"


def test_auto_has_a_plan_for_either_tier() -> None:
    args = parser().parse_args([])
    plan = made(args)
    assert plan.functions and plan.otherwise is not None and not plan.otherwise.functions
    args.instruments = ",".join(SAMPLED)
    assert made(args, SAMPLED) == replace(plan.otherwise, otherwise=None)


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
def test_what_was_not_asked_for_by_name_is_done_without(
    options: list[str], ways: list[tuple[str, ...]]
) -> None:
    args = parser().parse_args(options)
    plan: RunPlan | None = made(args)
    found = []
    while plan is not None:
        found.append(tuple(sorted({name for probes in plan.probes.values() for name in probes})))
        plan = plan.otherwise
    assert found == ways


def test_an_instrument_is_not_there_without_a_hook_that_it_needs() -> None:
    absent = {"instrument": "calls", "symbol": "sys_enter", "state": "missing", "reason": "no BTF"}
    rows = [hook("send", **REFUSED, required=True), hook("spare", **{**absent, "symbol": "none"})]
    rows.append(hook("enter", **absent, required=True))
    assert why_not(("functions", "bytes"), rows) is None
    assert why_not(("bytes", "calls"), rows) == "sys_enter: missing: no BTF"


def test_auto_does_not_mix_samples_and_function_hooks_in_one_segment() -> None:
    args = parser().parse_args(["--messages", "23"])
    plan = made(args)
    assert not plan.functions and plan.otherwise is not None and not plan.otherwise.functions


def test_functions_by_name_have_no_other_plan() -> None:
    args = parser().parse_args(["--instruments", "functions"])
    assert made(args).otherwise is None


def exact_record(**changes: Any) -> dict[str, Any]:
    """With hooks of other rows of the same categories, a mark, and one call in four timed."""
    raw = with_functions(
        raw_record("zero_copy", phases=("unprobed", "ledger", "functions")), gate=4, **changes
    )
    raw["hooks"] += [
        hook("pin_record", category="pin", state="attached"),
        hook("push", category=None, state="attached"),
    ]
    return raw


def added(rows: list[dict[str, Any]], key: str, category: str | None = None) -> int:
    return sum(row[key] for row in rows if category in (None, row.get("category")))


WHOLES = {
    "functions_counter_unreadable": ("cells", "timed_calls", None),
    "functions_broken": ("cells", "calls", None),
    "functions_too_deep": ("cells", "calls", None),
    "functions_task_map_full": ("cells", "calls", None),
    "recursion_copy_in": ("cells", "calls", "copy_in"),
    "missed_deferred": ("cells", "calls", "deferred"),
    "missed_pin": ("cells", "calls", "pin"),
    # nothing counts its own calls: each delimits a copy
    "recursion_receive": ("cells", "calls", None),
    "recursion_push": ("cells", "calls", None),
    "missed_zerocopy_use": ("cells", "calls", None),
}


@pytest.mark.parametrize("name", WHOLES)
def test_one_in_a_thousand_of_what_it_is_a_part_of_marks_the_run(name: str) -> None:
    raw = exact_record()
    rows, key, category = WHOLES[name]
    whole = added(raw["functions"][rows], key, category)
    raw["loss"][name] = whole // 2000
    assert derive(raw)["verdict"]["valid"]
    raw["loss"][name] = whole // 500 + 1
    made = derive(raw)
    assert made["loss"][name]["of"] == whole + whole // 500 + 1
    assert any(name in reason for reason in made["verdict"]["reasons"])


@pytest.mark.parametrize("impl", ["one_copy", "two_copy", "zero_copy", "sendfile"])
def test_a_record_has_the_same_shape_in_either_tier(impl: str) -> None:
    sampled = raw_record(impl, phases=("unprobed", "ledger", "calls"))
    sampled["run"] |= {"tier": "sampled", "tier_reason": "the sampler: no function can be hooked"}
    hooked = with_functions(raw_record(impl, phases=("unprobed", "ledger", "calls", "functions")))
    one, other = derive(sampled), derive(hooked)
    assert list(one) == list(other) and set(one["run"]) == set(other["run"])
    for name, key in (("ledger", "account"), ("stages", "stage")):
        rows = [[(row["side"], row["context"], row[key]) for row in full[name]] for full in (one, other)]
        assert rows[0] == rows[1]
        assert len({frozenset(row) for full in (one, other) for row in full[name]}) == 1
    columns = [account_lines(typed_whole(full), 400, verbose=True)[2].plain.split() for full in (one, other)]
    assert columns[0] == columns[1] and columns[0][0] == "copy"
    # What is hooked is in the same units as what is sampled.
    numbers = {"bytes", "calls", "cpu_ns", "ns_per_kib", "share", "method", "ci", "reasons"}
    numbers |= {"cycles", "instructions", "l1d_misses", "llc_misses"}
    assert one["exact"] == [] and other["exact"]
    assert all(numbers <= set(row) for row in [*other["exact"], *one["ledger"]])


def test_zero_copy_sends_that_found_no_slot_are_a_part_of_those_that_ended() -> None:
    raw = exact_record()
    raw["loss"]["functions_zerocopy_map_full"] = 2
    ended = raw["functions"]["completions"][0]
    made = derive(raw)["loss"]["functions_zerocopy_map_full"]
    assert made["of"] == ended["copied"] + ended["zerocopied"] + 2


def test_what_the_kernel_does_not_count_is_unknown_and_no_zero() -> None:
    raw = exact_record()
    raw["loss"] = {
        "functions_broken": 0,
        "recursion_send": {"count": None, "reason": "this kernel does not count"},
        "missed_send": {"count": None, "reason": "this kernel does not count"},
    }
    made = derive(raw)
    assert store.validate(made) == []
    unknown = {"count": None, "of": None, "share": None, "reason": "this kernel does not count"}
    assert made["loss"]["missed_send"] == unknown
    assert derive(made)["loss"] == made["loss"]
    assert made["verdict"]["valid"]
    text = "\n".join(map(str, loss_lines(typed_whole(made), 200, verbose=True)))
    assert "none; 1 loss counter read, zero" in text
    assert "n/a: 2 loss counters: this kernel does not count (recursion_send, missed_send)" in text


def test_copies_of_which_a_look_was_stopped_are_said_and_mark_a_run_when_they_are_many() -> None:
    raw = exact_record()
    timed = added(raw["functions"]["cells"], "timed_calls")
    for count, valid in ((0, True), (timed // 25, True), (timed // 15, False)):
        raw["loss"]["functions_look_stopped"] = count
        made = derive(raw)
        text = "\n".join(map(str, exact_lines(typed_whole(made), 300)))
        assert (f"left out: {count:,} of {timed + count:,} timed copies" in text) == (count > 0)
        assert made["verdict"]["valid"] is valid


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--count", "page-faults", "--instruments", "sampler"], "no function is hooked"),
        (["--count", "teapots", "--instruments", "functions"], "teapots"),
    ],
)
def test_what_cannot_be_counted_is_wrong_usage(options: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        check_usage(parser().parse_args(options))


def test_bytes_have_segments_of_their_own_but_in_a_run_of_one_segment() -> None:
    phases = phase_probes(("counters", "calls", "sampler"))
    apart = bytes_apart(phases)
    assert (apart["ledger"], apart["bytes"]) == (("sampler",), ("bytes",))
    assert set(apart) == {"unprobed", "ledger", "calls", "bytes"} <= set(PHASE_WEIGHTS)
    assert bytes_apart(phase_probes(("counters",)))["ledger"] == ()
    assert "bytes" not in bytes_apart(phase_probes(("calls",)))
    assert all_at_once(phases) == {"ledger+calls": ("bytes", "sampler", "calls")}
