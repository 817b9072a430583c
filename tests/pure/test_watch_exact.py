"""The exact tier of a watched program, on invented ones whose truth is known."""

import argparse
import io
from typing import Any

import pytest
from builders.watched import CALLS, EDGE_CALLS, KINDS, SIZE
from builders.watched_exact import watched_with_functions
from copyscope.commands.watch_arguments import check_usage, parser
from copyscope.errors import UsageError
from copyscope.ledger.derive import derive
from copyscope.plan.instruments import EXACT
from copyscope.plan.run_plan import watch_plan
from copyscope.record import store
from copyscope.record.check import typed_whole
from copyscope.show import watch
from rich.console import Console

Record = dict[str, Any]

# What may be at the edges of three segments, and one call of one thread at each of them.
TOLERANCE_CALLS = 3 * (2 * EDGE_CALLS + 2)


def identities(full: Record) -> dict[str, Record]:
    return {row["name"]: row for row in full["identities"] if row["name"].startswith("functions_")}


@pytest.mark.parametrize("kind", KINDS)
def test_every_identity_that_can_be_checked_holds(kind: str) -> None:
    raw = watched_with_functions(**KINDS[kind])
    assert store.validate(raw, raw=True) == []
    full = derive(raw)
    assert store.validate(full) == []
    assert [row for row in full["identities"] if row["holds"] is False] == []
    assert full["verdict"]["valid"], full["verdict"]["reasons"]
    found = identities(full)
    assert {"functions_copy_in", "functions_pin", "functions_copy_out"} <= set(found)
    assert ("functions_owner" in found) == ("zerocopy" in KINDS[kind])


@pytest.mark.parametrize(
    ("kind", "category", "name"),
    [
        ("write", "copy_in", "functions_copy_in"),
        ("sendfile", "pin", "functions_pin"),
        ("both ways", "copy_out", "functions_copy_out"),
    ],
)
def test_a_byte_beyond_what_was_under_way_breaks_it(kind: str, category: str, name: str) -> None:
    options = KINDS[kind]
    raw = watched_with_functions(**options)
    size = options.get("receives", SIZE)
    (cell,) = [row for row in raw["functions"]["cells"] if row["category"] == category and row["bytes"]]
    cell["bytes"] = (3 * CALLS + TOLERANCE_CALLS) * size
    assert identities(derive(raw))[name]["holds"] is True
    cell["bytes"] += 1
    assert identities(derive(raw))[name]["holds"] is False


def test_an_urgent_byte_is_copied_where_no_function_is_hooked() -> None:
    """tcp_recv_urg() copies it itself. It is received, and said to be copied out by the call it came with."""
    raw = watched_with_functions(**KINDS["both ways"])
    urgent = 10_000
    (received,) = (r for r in raw["volume"] if (r["phase"], r["direction"]) == ("functions", "receive"))
    raw["volume"].append(received | {"direction": "copy_out", "bytes": urgent, "calls": urgent})
    received["bytes"] += urgent
    found = identities(derive(raw))["functions_copy_out"]
    assert found["holds"] is True and found["right"] == 3 * CALLS * KINDS["both ways"]["receives"]
    assert found["what"] == "copy_out by function hooks = bytes received or looked at, but the urgent"


def test_what_sk_msg_copies_is_compared_with_nothing() -> None:
    """Into the kernel by a function that is hooked, out of it by one that is not."""
    raw = watched_with_functions(protocol="sockmap", receives=4096)
    raw["connections"] = []
    full = derive(raw)
    found = identities(full)
    assert set(found) == {"functions_copy_in", "functions_pin", "functions_copy_out"}
    assert all(row["holds"] is None and "sk_msg" in row["reason"] for row in found.values())
    assert full["verdict"]["valid"], full["verdict"]["reasons"]


def test_the_owner_of_deferred_copies_is_the_program() -> None:
    raw = watched_with_functions(zerocopy=True, copied=100)
    full = derive(raw)
    assert [row["owner_side"] for row in full["zerocopy_life"]["owners"]] == ["target"]
    # What is sent a second time is copied a second time.
    tolerance = identities(full)["functions_owner"]["tolerance"]
    raw["connections"][0]["retransmitted_bytes"] = 5 * SIZE
    assert identities(derive(raw))["functions_owner"]["tolerance"] == tolerance + 5 * SIZE
    raw["functions"]["owners"][0]["owner_side"] = "other"
    assert identities(derive(raw))["functions_owner"]["holds"] is False


def test_bytes_of_some_copied_sends_are_not_known() -> None:
    found = identities(derive(watched_with_functions(zerocopy=True, copied=50)))
    assert (
        found["functions_owner"]["holds"] is None
        and "not of how many bytes" in found["functions_owner"]["reason"]
    )
    assert found["functions_completions"]["holds"] is True


def test_exact_rows_are_per_kib_of_what_the_program_moved() -> None:
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


def arguments(*options: str) -> argparse.Namespace:
    args = parser().parse_args(list(options))
    check_usage(args, ["true"])
    return args


def test_functions_are_hooked_where_that_is_asked_for() -> None:
    for options in (["--exact"], ["--exact", "--count", "none"], ["--instruments", "sampler,functions"]):
        plan = watch_plan(arguments("--duration", "5", *options), 1)
        assert plan.functions and plan.otherwise is None and "--functions" in plan.collector()
        assert [segment.phase in EXACT for segment in plan.segments][-6:] == [True] * 6
    whole = watch_plan(arguments("--whole", "--exact"), 1)
    assert list(whole.probes.items()) == [("functions", ("functions",))]
    for sampled in ([], ["--live"], ["--whole"], ["--duration", "5"]):
        assert not watch_plan(arguments(*sampled), 1).functions


def test_the_whole_of_a_command_is_one_segment() -> None:
    plan = watch_plan(arguments("--whole", "--instruments", "calls,functions"), 1)
    (segment,) = plan.segments
    assert str(segment.phase) == "calls+functions" and segment.length_s == float("inf")
    assert plan.probes == {"calls+functions": ("calls", "packets", "shape", "functions")}
    assert plan.gate and plan.gate.reason == "every copy timed: --whole"
    (segment,) = watch_plan(arguments("--whole", "--duration", "1.5"), 1).segments
    assert segment.length_s == 1.5


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--live", "--whole"], "--live and --whole"),
        (["--count", "none", "--instruments", "sampler"], "no function is hooked"),
        (["--count", "none"], "no function is hooked"),
        (["--exact"], "--exact: function hooks run at the end: give --duration S, or --whole"),
        (["--instruments", "functions"], "--instruments functions: function hooks run at the end"),
        (["--exact", "--instruments", "sampler", "--duration", "5"], "--exact and --instruments"),
        (["--count", "sheep"], "--count: sheep"),
    ],
)
def test_what_makes_no_sense_is_refused(options: list[str], said: str) -> None:
    with pytest.raises(UsageError, match=said):
        arguments(*options)
