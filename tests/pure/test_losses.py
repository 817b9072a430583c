# SPDX-License-Identifier: GPL-2.0-only
"""Losses are judged by their share and by the numbers that they can change; each reason has a next step."""

from typing import Any

import pytest
from builders.documents import derive, typed, typed_whole
from builders.kernel import hook_row
from builders.watched import watched_record
from copyscope.ledger.verdict import DEFAULT_STEP, next_step
from copyscope.show import first_screen
from rich.console import Console

Record = dict[str, Any]

BUSY = "busy"


def with_loss(name: str, count: int, instrument: str = "volume", **options: Any) -> Record:
    raw = watched_record(receives=4096, **options)
    hook = name.removeprefix("recursion_")
    raw["hooks"].append(hook_row(hook, instrument=instrument, required=False))
    raw["loss"][name] = count
    return raw


def verdict(raw: Record) -> Record:
    section: Record = derive(raw)["verdict"]
    return section


@pytest.mark.parametrize("hook", ["socket_closed", "socket_destroyed", "packet", "shape", "round"])
def test_losses_that_change_no_number_are_tolerated(hook: str) -> None:
    """A lost event of these hooks leaves all bytes right: a closed socket stays in the map longer."""
    raw = with_loss(f"recursion_{hook}", 3, "watch")
    full = derive(raw)
    assert full["verdict"]["valid"], full["verdict"]["reasons"]
    assert full["loss"][f"recursion_{hook}"]["count"] == 3
    shown = Console(width=160, height=50, color_system=None, force_terminal=True, record=True)
    first_screen.render(typed_whole(full), shown)
    assert hook in shown.export_text()


@pytest.mark.parametrize(
    "hook", ["volume_sent", "volume_received", "volume_copied_out", "volume_spliced", "syscall_exit"]
)
def test_one_skipped_call_is_tolerated(hook: str) -> None:
    instrument = "calls" if hook == "syscall_exit" else "volume"
    record = derive(with_loss(f"recursion_{hook}", 1, instrument, maps=True))
    assert record["verdict"]["valid"], record["verdict"]["reasons"]
    assert record["loss"][f"recursion_{hook}"]["of"] > 10_000


@pytest.mark.parametrize("hook", ["volume_sent", "volume_received", "volume_copied_out"])
def test_skipped_calls_are_tolerated_if_another_count_is_complete(hook: str) -> None:
    """The kernel counts skipped calls of all programs, and TCP confirms that none of ours is missing."""
    assert verdict(with_loss(f"recursion_{hook}", 5000))["valid"]


@pytest.mark.parametrize(("lost", "valid"), [(0.005, True), (0.02, False)])
def test_bytes_spliced_before_their_hook_are_missing_in_one_sum(lost: float, valid: bool) -> None:
    """A relay starts to splice, and its connections close before TCP is queried again."""
    raw = watched_record(maps=True)
    raw["connections"] = []
    taken = sum(row["calls"] for row in raw["volume"] if row["direction"] == "mapped")
    raw["loss"]["splices_before_their_hook"] = round(lost * taken)
    assert verdict(raw)["valid"] is valid


def test_a_splice_at_the_end_of_a_stream_is_tolerated() -> None:
    assert verdict(with_loss("splices_before_their_hook", 1))["valid"]
    raw = watched_record()
    raw["loss"]["splices_before_their_hook"] = 1
    assert not verdict(raw)["valid"]  # the connection received no other bytes


def test_many_skipped_calls_are_invalid_without_another_count() -> None:
    raw = with_loss("recursion_volume_sent", 5000)
    raw["connections"] = []
    section = verdict(raw)
    assert not section["valid"] and section["reasons"][0].startswith("loss: recursion_volume_sent: 5,000 of")
    assert "idle" not in section["next"] and "report" in section["next"]


def test_a_count_with_a_large_tolerance_proves_nothing() -> None:
    """TCP's two own counts are 3 % apart."""
    raw = with_loss("recursion_volume_sent", 5000)
    row = raw["connections"][0]
    row["sent_outer_bytes"] += round(0.06 * row["sent_inner_bytes"])
    row["sent_bytes"] = (row["sent_inner_bytes"] + row["sent_outer_bytes"]) // 2
    full = derive(raw)
    assert all(check["holds"] is not False for check in full["identities"])
    assert not full["verdict"]["valid"]


def test_skipped_completions_matter_only_with_zero_copy() -> None:
    assert verdict(with_loss("recursion_completion", 1, "watch"))["valid"]
    zerocopy = verdict(with_loss("recursion_completion", 5000, "watch", zerocopy=True))
    assert not zerocopy["valid"]


@pytest.mark.parametrize(("lost", "valid"), [(1, True), (6, True), (7, False)])
def test_up_to_1_percent_of_the_samples_may_be_lost(lost: int, valid: bool) -> None:
    """With 600 samples the interval of a quarter is seven points wide."""
    raw = watched_record()
    raw["loss"]["samples_stack_unreadable"] = lost
    assert verdict(raw)["valid"] is valid


@pytest.mark.parametrize(
    ("reason", "step"),
    [
        ("identity target_time: x: 1 is not 2 ns", "machine busy: repeat when idle, or --duration 12"),
        ("identity within_cpus: x: 1 is not 2 ns", "machine busy: repeat when idle, or --duration 12"),
        ("identity connection_sent_bytes: x: 1 is not 0 bytes", "keep the run with --json FILE and report"),
        ("loss: samples_stack_map_full: 4 of 9: more than 0.1 %", "machine busy: repeat when idle"),
        ("loss: calls_task_map_full: 3 of an unknown number", "--instruments counters,sampler"),
        ("loss: functions_too_deep: 3 of 9", "--gate"),
        (
            "loss: watch_process_map_full: 3 of an unknown number",
            "watch a part of the program (--pid, --unit)",
        ),
        ("loss: recursion_syscall_exit: 3 of 9", "--instruments counters,sampler"),
        ("loss: recursion_volume_sent: 3 of 9", "report"),
        ("too short: 12 ms with instruments", "longer"),
        ("interrupted: 2.8 of 5 s measured", "without an interruption"),
    ],
)
def test_each_reason_has_its_own_next_step(reason: str, step: str) -> None:
    """An idle machine only helps against clocks and samples that disagree, not against wrong counts."""
    raw = derive(with_loss("recursion_syscall_exit", 0, "calls"))
    step_text = next_step([reason], BUSY, 3.0, typed(raw).hooks)
    assert step in step_text and step_text != DEFAULT_STEP
    assert ("idle" in step_text) == ("idle" in step)
