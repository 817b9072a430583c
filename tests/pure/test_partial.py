# SPDX-License-Identifier: GPL-2.0-only
"""Interrupted runs, and runs with few instruments: known values are kept, unknown values have a reason."""

import copy
import io
from typing import Any

import builders
import pytest
from builders.documents import derive, typed_whole, validate
from copyscope.record import store
from copyscope.record.segments import NO_LEDGER
from copyscope.show import terminal
from rich.console import Console

Record = dict[str, Any]

RUNS: dict[str, dict[str, Any]] = {
    "sender died": {"died": ("sender",)},
    "receiver died": {"died": ("receiver",)},
    "collector died": {"died": ("collector",)},
    "all died": {"died": ("sender", "receiver", "collector")},
    "interrupted after two segments": {"stopped_after": 2},
    "interrupted after one segment": {"stopped_after": 1},
    "nothing was measured": {"stopped_after": 0},
    "nothing was measured, nobody is left": {"stopped_after": 0, "died": ("sender", "receiver", "collector")},
    "calls only": {"phases": ("unprobed", "calls")},
    "ledger only": {"phases": ("unprobed", "ledger")},
    "no instrument": {"phases": ("unprobed",)},
}
IMPLS = ("one_copy", "two_copy", "zero_copy", "null")


def derived(impl: str, run: str) -> Record:
    return derive(builders.raw_record(impl, **RUNS[run]))


def identity(full: Record, name: str) -> Record:
    return next(identity_row for identity_row in full["identities"] if identity_row["name"] == name)


def report(full: Record, *, verbose: bool = True) -> str:
    console = Console(file=io.StringIO(), width=100, color_system=None)
    terminal.render(typed_whole(full), verbose=verbose, explain=verbose, console=console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.parametrize("run", RUNS)
@pytest.mark.parametrize("impl", IMPLS)
def test_a_partial_run_is_shown_without_a_broken_identity(impl: str, run: str) -> None:
    full = derived(impl, run)
    assert [i for i in full["identities"] if i["holds"] is False] == []
    assert all(i["reason"] for i in full["identities"] if i["holds"] is None)
    text = report(full)
    assert text.isascii() and "None" not in text
    assert max(map(len, text.splitlines())) <= 100
    assert store.serialise(derive(full)) == store.serialise(full)
    assert validate(full) == []  # every null has its reason


@pytest.mark.parametrize(
    "run", [name for name, run in RUNS.items() if run.keys() & {"died", "stopped_after"}]
)
def test_errors_of_the_run_are_the_first_reasons(run: str) -> None:
    full = derived("one_copy", run)
    errors = full["run"]["errors"]
    assert errors and not full["verdict"]["valid"]
    reasons = full["verdict"]["reasons"]
    stopped = reasons[0].startswith("interrupted: 0.")
    assert stopped == full["run"]["interrupted"]
    assert reasons[stopped : len(errors)] == [f"run: {error}" for error in errors[stopped:]]
    assert report(full, verbose=False).startswith("INVALID RUN") == (reasons != reasons[:stopped])


def test_errors_come_before_a_broken_identity() -> None:
    raw = builders.raw_record("one_copy", died=("receiver",))
    raw["run"]["segments"][1]["sides"]["sender"]["bytes"] += 1
    reasons = derive(raw)["verdict"]["reasons"]
    assert reasons[0] == "run: receiver: ended by SIGKILL"
    assert any(reason.startswith("identity delivered") for reason in reasons[1:])


@pytest.mark.parametrize("run", ["calls only", "ledger only"])
@pytest.mark.parametrize("impl", ["one_copy", "zero_copy"])
def test_a_run_with_few_instruments_is_valid(impl: str, run: str) -> None:
    full = derived(impl, run)
    assert full["verdict"]["valid"], full["verdict"]["reasons"]
    assert identity(full, "delivered")["holds"]


def test_without_ledger_segments_unknown_values_are_never_zero() -> None:
    full = derived("zero_copy", "calls only")
    absent = NO_LEDGER
    for row in full["ledger"]:
        if row["account"] != "gather":
            assert row["bytes"] is None and row["cpu_ns"] is None
            assert row["reasons"]["bytes"] == row["reasons"]["cpu_ns"] == absent
    for name in (
        "sent_bytes",
        "referenced_bytes",
        "received_bytes",
        "received_split",
        "sent_calls",
        "sender_time",
    ):
        assert (identity(full, name)["holds"], identity(full, name)["reason"]) == (None, absent)
    assert identity(full, "timed_calls")["holds"]
    assert (
        full["sides"]["sender"]["cpu_ns"] is None and full["sides"]["sender"]["reasons"]["cpu_ns"] == absent
    )
    assert full["zerocopy"]["bytes_silent"] is None
    assert absent in full["verdict"]["sentence"]
    assert "no copy on the way" not in full["verdict"]["sentence"]
    assert full["overhead"]["reason"] == "this run has no segment of this phase"
    assert full["overhead"]["phases"]["calls"]["ratio"] is not None


def test_without_a_senders_report_the_gather_copy_is_known_only_by_its_timer() -> None:
    gather = next(row for row in derived("two_copy", "sender died")["ledger"] if row["account"] == "gather")
    assert gather["bytes"] > 0 and gather["cpu_ns"] > 0
    gather = next(row for row in derived("one_copy", "sender died")["ledger"] if row["account"] == "gather")
    assert gather["bytes"] is None and "gave no report" in gather["reasons"]["bytes"]


def test_without_a_collectors_report_bytes_come_from_the_program() -> None:
    full = derived("one_copy", "collector died")
    copy_in = next(row for row in full["ledger"] if row["account"] == "copy_in")
    assert (copy_in["bytes"], copy_in["bytes_method"]) == (29_100 * 65_536, "derived")
    assert identity(full, "sent_bytes")["reason"] == "the collector gave no report"
    assert identity(full, "timed_calls")["holds"] is None


def test_more_kernel_bytes_after_an_interrupted_segment_are_no_contradiction() -> None:
    raw = builders.raw_record("one_copy", stopped_after=4)
    unchanged = copy.deepcopy(raw)
    for row in raw["bytes"]:
        row["bytes"] += 4_096
    sent_bytes = identity(derive(raw), "sent_bytes")
    assert sent_bytes["holds"] is None and "ended inside a segment" in sent_bytes["reason"]
    assert identity(derive(unchanged), "sent_bytes")["holds"]
    raw["run"] |= {"interrupted": False, "errors": []}
    assert identity(derive(raw), "sent_bytes")["holds"] is False


NO_BTF = "/sys/kernel/btf/vmlinux: missing: this kernel has no BTF"


def without_hooks(impl: str) -> Record:
    """Return a run on a kernel that supports the sampler but no hook."""
    raw = builders.raw_record(impl, phases=("unprobed", "ledger"))
    raw["run"]["bytes_phase"] = None
    raw["bytes"] = []
    for row in raw["hooks"]:
        row |= {"state": "missing", "how": None, "reason": NO_BTF}
    return derive(raw)


@pytest.mark.parametrize("impl", IMPLS)
def test_without_hooks_the_sampled_ledger_is_kept_and_counts_have_a_reason(impl: str) -> None:
    full = without_hooks(impl)
    assert full["verdict"]["valid"] and validate(full) == []
    for side, account in (("sender", "copy_in"), ("receiver", "copy_out")):
        row = next(row for row in full["ledger"] if row["account"] == account and row["context"] == "process")
        assert row["side"] == side and row["cpu_ns"] is not None and row["bytes_method"] == "derived"
        assert row["calls"] is None and NO_BTF in row["reasons"]["calls"]
    counted = [
        "sent_bytes",
        "referenced_bytes",
        "received_bytes",
        "received_split",
        "sent_calls",
        "received_calls",
    ]
    references = ["zerocopy_calls"] if impl == "zero_copy" else []
    for name in (*counted, *references, "timed_calls"):
        assert identity(full, name)["holds"] is None and NO_BTF in identity(full, name)["reason"]
    text = report(full, verbose=False)
    assert text.replace("\n", " ").count("BTF") >= 3 and "None" not in text
