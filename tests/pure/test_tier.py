"""Which tier a run is of, and the losses of its hooks."""

from __future__ import annotations

from typing import Any

import pytest
from builders import raw_record
from builders.exact import with_functions
from copyscope import ledger
from copyscope.options import Traffic, make_plan
from copyscope.plan import SAMPLED, parse_instruments
from copyscope.profile_arguments import parser
from copyscope.render.ledger_table import account_lines
from copyscope.render.evidence import hook_lines
from copyscope.tier import choose_tier

TRAFFIC = Traffic((), (), {"in_file": False})
REFUSED = {"state": "refused", "how": None, "reason": "fentry: load: Operation not permitted"}


def hook(name: str, **changes: Any) -> dict[str, Any]:
    row = {"id": name, "instrument": "functions", "symbol": f"tcp_{name}", "state": "available"}
    required = name in ("send", "receive")
    return {**row, "how": "fentry", "reason": None, "required": required, **changes}


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


@pytest.mark.parametrize("root", ["send", "receive"])
def test_kprobes_are_taken_only_by_name(root: str) -> None:
    rows = [hook(name, how="kprobe" if name == root else "fentry") for name in ("send", "receive")]
    tier = choose_tier(True, rows)
    assert not tier.exact and f"tcp_{root} by kprobe only" in tier.reason
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
    assert make_plan(args, parse_instruments(args.instruments), TRAFFIC, seed=1).copy_in == "call-site"


@pytest.mark.parametrize("in_file", [False, True])
def test_calls_that_pass_the_socket_in_pieces_are_counted_where_they_return(in_file: bool) -> None:
    traffic = Traffic((), (), {"in_file": in_file})
    plan = make_plan(parser().parse_args([]), SAMPLED, traffic, seed=1)
    assert plan.count_returns is in_file


def test_a_tracepoint_that_the_clock_needs_is_as_good_as_a_root() -> None:
    rows = [hook("send"), hook("receive"), hook("switch", required=True, **REFUSED)]
    assert "tcp_switch: fentry: load" in choose_tier(True, rows).reason
    assert not choose_tier(True, rows).exact
    assert not choose_tier(True, []).exact


@pytest.mark.parametrize(("tier", "valid"), [("exact", False), ("sampled", True)])
def test_a_run_without_function_hooks_is_not_judged_by_them(tier: str, valid: bool) -> None:
    raw = raw_record("one_copy")
    raw["run"] |= {"tier": tier, "tier_reason": "of this test"}
    raw["hooks"].append(hook("send", **REFUSED))
    made = ledger.derive(raw)
    assert made["verdict"]["valid"] is valid
    assert ("tcp_send refused" in "".join(map(str, hook_lines(made, 200, verbose=False)))) is not valid


def test_not_asked_for_is_not_refused() -> None:
    assert choose_tier(False, [hook("send"), hook("receive")]).reason == "function hooks: not asked for"


def test_auto_has_a_plan_for_either_tier() -> None:
    args = parser().parse_args([])
    plan = make_plan(args, parse_instruments("auto"), TRAFFIC, seed=1)
    assert plan.functions and plan.otherwise is not None and not plan.otherwise.functions
    args.instruments = ",".join(SAMPLED)
    assert make_plan(args, SAMPLED, TRAFFIC, seed=1) == plan.otherwise


def test_auto_does_not_mix_samples_and_function_hooks_in_one_segment() -> None:
    args = parser().parse_args(["--messages", "23"])
    plan = make_plan(args, parse_instruments("auto"), TRAFFIC, seed=1)
    assert not plan.functions and plan.otherwise is None


def test_functions_by_name_have_no_other_plan() -> None:
    args = parser().parse_args(["--instruments", "functions"])
    assert make_plan(args, parse_instruments(args.instruments), TRAFFIC, seed=1).otherwise is None


@pytest.mark.parametrize("name", ["recursion_copy_in", "missed_send", "functions_broken"])
def test_one_call_in_a_thousand_lost_marks_the_run(name: str) -> None:
    raw = with_functions(raw_record("zero_copy", arms=("unprobed", "ledger", "functions")))
    calls = sum(cell["calls"] for cell in raw["functions"]["cells"])
    raw["loss"][name] = calls // 2000
    assert ledger.derive(raw)["verdict"]["valid"]
    raw["loss"][name] = calls // 500
    made = ledger.derive(raw)
    assert made["loss"][name]["of"] == calls + calls // 500
    assert any(name in reason for reason in made["verdict"]["reasons"])


@pytest.mark.parametrize("impl", ["one_copy", "two_copy", "zero_copy", "sendfile"])
def test_a_record_has_the_same_shape_in_either_tier(impl: str) -> None:
    sampled = raw_record(impl, arms=("unprobed", "ledger", "calls"))
    sampled["run"] |= {"tier": "sampled", "tier_reason": "the sampler: no function can be hooked"}
    hooked = with_functions(raw_record(impl, arms=("unprobed", "ledger", "calls", "functions")))
    one, other = ledger.derive(sampled), ledger.derive(hooked)
    assert list(one) == list(other) and set(one["run"]) == set(other["run"])
    for name, key in (("ledger", "account"), ("stages", "stage")):
        rows = [[(row["side"], row["context"], row[key]) for row in full[name]] for full in (one, other)]
        assert rows[0] == rows[1]
        assert len({frozenset(row) for full in (one, other) for row in full[name]}) == 1
    columns = [account_lines(full, 400, verbose=True)[2].plain.split() for full in (one, other)]
    assert columns[0] == columns[1] and columns[0][0] == "account"
    # What is hooked is in the same units as what is sampled.
    numbers = {"bytes", "calls", "cpu_ns", "ns_per_kib", "share", "method", "ci", "reasons"}
    numbers |= {"cycles", "instructions", "l1d_misses", "llc_misses"}
    assert one["exact"] == [] and other["exact"]
    assert all(numbers <= set(row) for row in [*other["exact"], *one["ledger"]])
