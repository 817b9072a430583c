# SPDX-License-Identifier: GPL-2.0-only
"""The exact tier of invented watched programs."""

import argparse
import io
import re
from typing import Any

import pytest
from builders.documents import derive, typed_whole, validate
from builders.watched import CALLS, EDGE_CALLS, KINDS, SIZE, watched_record
from builders.watched_exact import watched_with_functions
from copyscope.base.errors import UsageError
from copyscope.commands.watch_arguments import check_usage, parser
from copyscope.plan.run_plan import watch_plan
from copyscope.plan.schedule import EXACT
from copyscope.show import first_screen, watch
from rich.console import Console

Record = dict[str, Any]

# Calls while hooks of three segments are attached or detached, and a call of one thread at each such moment.
TOLERANCE_CALLS = 3 * (2 * EDGE_CALLS + 2)


def identities(full: Record) -> dict[str, Record]:
    return {row["name"]: row for row in full["identities"] if row["name"].startswith("functions_")}


@pytest.mark.parametrize("kind", KINDS)
def test_consistent_records_pass_all_checks(kind: str) -> None:
    raw = watched_with_functions(**KINDS[kind])
    assert validate(raw, raw=True) == []
    full = derive(raw)
    assert validate(full) == []
    assert [row for row in full["identities"] if row["holds"] is False] == []
    assert full["verdict"]["valid"], full["verdict"]["reasons"]
    checks = identities(full)
    assert {"functions_copy_in", "functions_pin", "functions_copy_out"} <= set(checks)
    assert ("functions_owner" in checks) == ("zerocopy" in KINDS[kind])


@pytest.mark.parametrize(
    ("kind", "category", "name"),
    [
        ("write", "copy_in", "functions_copy_in"),
        ("sendfile", "pin", "functions_pin"),
        ("both ways", "copy_out", "functions_copy_out"),
    ],
)
def test_one_byte_more_than_the_tolerance_breaks_the_check(kind: str, category: str, name: str) -> None:
    options = KINDS[kind]
    raw = watched_with_functions(**options)
    size = options.get("receives", SIZE)
    (cell,) = [row for row in raw["functions"]["cells"] if row["category"] == category and row["bytes"]]
    cell["bytes"] = (3 * CALLS + TOLERANCE_CALLS) * size
    assert identities(derive(raw))[name]["holds"] is True
    cell["bytes"] += 1
    assert identities(derive(raw))[name]["holds"] is False


def test_urgent_bytes_are_left_out_of_the_check() -> None:
    """tcp_recv_urg() copies urgent bytes, and no hook sees that copy."""
    raw = watched_with_functions(**KINDS["both ways"])
    urgent = 10_000
    (received,) = (r for r in raw["volume"] if (r["phase"], r["direction"]) == ("functions", "receive"))
    raw["volume"].append(received | {"direction": "copy_out", "bytes": urgent, "calls": urgent})
    received["bytes"] += urgent
    check = identities(derive(raw))["functions_copy_out"]
    assert check["holds"] is True and check["right"] == 3 * CALLS * KINDS["both ways"]["receives"]
    assert check["what"] == "copy_out by function hooks = bytes received or peeked at, without urgent bytes"


def test_copies_of_a_sockmap_are_unchecked() -> None:
    """The function that copies into the kernel is hooked. The function that copies out is not."""
    raw = watched_with_functions(protocol="sockmap", receives=4096)
    raw["connections"] = []
    full = derive(raw)
    checks = identities(full)
    assert set(checks) == {"functions_copy_in", "functions_pin", "functions_copy_out"}
    assert all(row["holds"] is None and "sk_msg" in row["reason"] for row in checks.values())
    assert full["verdict"]["valid"], full["verdict"]["reasons"]


def test_late_copies_belong_to_the_program() -> None:
    raw = watched_with_functions(zerocopy=True, copied=100)
    full = derive(raw)
    assert [row["owner_side"] for row in full["zerocopy_life"]["owners"]] == ["target"]
    # Retransmitted bytes are copied again.
    tolerance = identities(full)["functions_owner"]["tolerance"]
    raw["connections"][0]["retransmitted_bytes"] = 5 * SIZE
    assert identities(derive(raw))["functions_owner"]["tolerance"] == tolerance + 5 * SIZE
    raw["functions"]["owners"][0]["owner_side"] = "other"
    assert identities(derive(raw))["functions_owner"]["holds"] is False


def test_late_bytes_are_unknown_if_only_some_sends_were_copied() -> None:
    checks = identities(derive(watched_with_functions(zerocopy=True, copied=50)))
    assert (
        checks["functions_owner"]["holds"] is None
        and "not how many bytes" in checks["functions_owner"]["reason"]
    )
    assert checks["functions_completions"]["holds"] is True


def test_exact_rows_are_per_kib_sent_and_received() -> None:
    full = derive(watched_with_functions(receives=SIZE))
    (row,) = [row for row in full["exact"] if row["category"] == "copy_in"]
    assert row["ns_per_kib"] == pytest.approx(row["cpu_ns"] / (2 * 3 * CALLS * SIZE / 1024))
    assert {row["side"] for row in full["exact"]} == {"target"}
    for width in (60, 100):
        stream = io.StringIO()
        watch.render(
            typed_whole(full), verbose=True, console=Console(file=stream, width=width, color_system=None)
        )
        assert "EXACT" in stream.getvalue() and "tier" in stream.getvalue()
        assert max(len(line) for line in stream.getvalue().splitlines()) <= width


def screens(full: Record, *, verbose: bool = False) -> str:
    """Return the first screen, or the report of -v, as one line of text."""
    stream = io.StringIO()
    console = Console(file=stream, width=100, height=60, color_system=None)
    if verbose:
        watch.render(typed_whole(full), verbose=False, console=console)
    else:
        first_screen.render(typed_whole(full), console)
    return " ".join(stream.getvalue().split())


def test_a_whole_exact_watch_has_the_ledger_on_the_first_screen() -> None:
    raw = watched_with_functions(blocks=1, phases=("ledger+calls+functions",))
    raw["target"] |= {"how": "command", "command": ["server"], "ended": "the command ended"}
    full = derive(raw)
    assert full["verdict"]["valid"], full["verdict"]["reasons"]
    first = screens(full)
    assert "copies were not measured" not in first and "copy into the kernel" in first
    (copy,) = (row for row in full["ledger"] if row["account"] == "copy_in")
    (exact,) = (row for row in full["exact"] if row["category"] == "copy_in")
    assert copy["bytes"] == CALLS * SIZE <= exact["bytes"]
    # SEND_NS of 64 calls of 1 KiB each: the exact cost for one KiB.
    cost = f"{exact['cpu_ns'] / (CALLS * SIZE / 1024):,.1f}"
    assert re.search(
        rf"EXACT .*copy into the kernel target process [^-]* {re.escape(cost)} ", screens(full, verbose=True)
    )


def test_a_command_that_ended_before_the_function_hooks_says_so() -> None:
    raw = watched_record()
    raw["target"] |= {"how": "command", "command": ["server"], "ended": "the command ended"}
    assert "nothing exact" not in derive(raw)["verdict"]["sentence"]
    raw["run"] |= {"tier": "exact", "tier_reason": "function hooks: 15 by fentry"}
    full = derive(raw)
    assert "nothing exact was measured: the command ended before" in full["verdict"]["sentence"]
    assert "nothing exact was measured" in screens(full)
    assert "EXACT" in screens(full, verbose=True)


def arguments(*options: str) -> argparse.Namespace:
    args = parser().parse_args(list(options))
    check_usage(args, ["true"])
    return args


def test_only_exact_and_functions_hook_functions() -> None:
    for options in (["--exact"], ["--exact", "--count", "none"], ["--instruments", "sampler,functions"]):
        plan = watch_plan(arguments("--duration", "5", *options), 1)
        assert plan.functions and plan.fallback is None and "--functions" in plan.collector()
        assert [segment.phase in EXACT for segment in plan.segments][-6:] == [True] * 6
    single_segment = watch_plan(arguments("--whole", "--exact"), 1)
    ((phase, probes),) = single_segment.probes.items()
    assert phase == "ledger+calls+functions"
    assert {"copies", "sampler", "calls", "functions"} <= set(probes) and single_segment.counters
    for sampled in ([], ["--live"], ["--whole"], ["--duration", "5"]):
        assert not watch_plan(arguments(*sampled), 1).functions


def test_the_option_whole_makes_one_segment() -> None:
    plan = watch_plan(arguments("--whole", "--instruments", "calls,functions"), 1)
    (segment,) = plan.segments
    assert str(segment.phase) == "calls+functions" and segment.length_s == float("inf")
    assert plan.probes == {"calls+functions": ("calls", "packets", "shape", "functions")}
    assert plan.gate and plan.gate.reason == "every copy timed: --whole"
    (segment,) = watch_plan(arguments("--whole", "--duration", "1.5"), 1).segments
    assert segment.length_s == 1.5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--live", "--whole"], "--live: not with --whole"),
        (["--count", "none", "--instruments", "sampler"], "no function is hooked"),
        (["--count", "none"], "no function is hooked"),
        (["--exact"], "--exact: function hooks run at the end; give --duration S, or --whole"),
        (["--instruments", "functions"], "--instruments functions: function hooks run at the end"),
        (["--exact", "--instruments", "sampler", "--duration", "5"], "--exact: not with --instruments"),
        (["--count", "sheep"], "--count sheep"),
    ],
)
def test_contradictory_options_are_usage_errors(options: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        arguments(*options)
