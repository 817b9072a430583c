"""A loss counts by its share, and by what it can change in an answer; each reason has its own next step."""

from typing import Any

import pytest
from builders.kernel import hook_row
from builders.watched import watched_record
from copyscope.ledger.derive import derive
from copyscope.ledger.verdict import OTHERWISE, next_step
from copyscope.record.check import typed, typed_whole
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
    found: Record = derive(raw)["verdict"]
    return found


@pytest.mark.parametrize("hook", ["socket_closed", "socket_destroyed", "packet", "shape", "round"])
def test_a_hook_on_which_no_number_rests_may_be_skipped(hook: str) -> None:
    """One of 800,000 events made a run invalid: the place of a closed socket was given back later."""
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
def test_of_one_skipped_call_the_share_is_known_and_forgiven(hook: str) -> None:
    instrument = "calls" if hook == "syscall_exit" else "volume"
    made = derive(with_loss(f"recursion_{hook}", 1, instrument, maps=True))
    assert made["verdict"]["valid"], made["verdict"]["reasons"]
    assert made["loss"][f"recursion_{hook}"]["of"] > 10_000


@pytest.mark.parametrize("hook", ["volume_sent", "volume_received", "volume_copied_out"])
def test_more_is_forgiven_where_another_count_has_every_byte(hook: str) -> None:
    """The kernel counts what it skipped of all programs together: TCP says that nothing of ours is lost."""
    assert verdict(with_loss(f"recursion_{hook}", 5000))["valid"]


@pytest.mark.parametrize(("lost", "valid"), [(0.005, True), (0.02, False)])
def test_what_was_spliced_before_its_hook_came_is_missing_in_one_sum(lost: float, valid: bool) -> None:
    """A relay that begins to splice, and ends with its connections: TCP was not asked twice."""
    raw = watched_record(maps=True)
    raw["connections"] = []
    taken = sum(row["calls"] for row in raw["volume"] if row["direction"] == "mapped")
    raw["loss"]["splices_before_their_hook"] = round(lost * taken)
    assert verdict(raw)["valid"] is valid


def test_a_splice_that_finds_the_end_of_a_stream_condemns_no_run() -> None:
    assert verdict(with_loss("splices_before_their_hook", 1))["valid"]
    raw = watched_record()
    raw["loss"]["splices_before_their_hook"] = 1
    assert not verdict(raw)["valid"]  # it received nothing else


def test_without_another_count_it_is_not() -> None:
    raw = with_loss("recursion_volume_sent", 5000)
    raw["connections"] = []
    found = verdict(raw)
    assert not found["valid"] and found["reasons"][0].startswith("loss: recursion_volume_sent: 5,000 of")
    assert "idle" not in found["next"] and "report" in found["next"]


def test_a_count_that_differs_by_more_than_a_hundredth_proves_nothing() -> None:
    """TCP was asked so far apart that its own two counts leave 3 % between them."""
    raw = with_loss("recursion_volume_sent", 5000)
    row = raw["connections"][0]
    row["sent_outer_bytes"] += round(0.06 * row["sent_inner_bytes"])
    row["sent_bytes"] = (row["sent_inner_bytes"] + row["sent_outer_bytes"]) // 2
    full = derive(raw)
    assert all(one["holds"] is not False for one in full["identities"])
    assert not full["verdict"]["valid"]


def test_a_skipped_completion_is_nothing_to_a_program_without_zero_copy() -> None:
    assert verdict(with_loss("recursion_completion", 1, "watch"))["valid"]
    zerocopy = verdict(with_loss("recursion_completion", 5000, "watch", zerocopy=True))
    assert not zerocopy["valid"]


@pytest.mark.parametrize(("lost", "valid"), [(1, True), (6, True), (7, False)])
def test_of_samples_a_hundredth_moves_no_share_by_more_than_a_point(lost: int, valid: bool) -> None:
    """600 samples: the interval of a quarter is seven points wide."""
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
        ("loss: watch_process_map_full: 3 of an unknown number", "watch a part of it (--pid, --unit)"),
        ("loss: recursion_syscall_exit: 3 of 9", "--instruments counters,sampler"),
        ("loss: recursion_volume_sent: 3 of 9", "report"),
        ("too short: 12 ms with instruments", "longer"),
        ("interrupted: 2.8 of 5 s measured", "to its end"),
    ],
)
def test_each_reason_has_its_own_next_step(reason: str, step: str) -> None:
    """Idleness mends what a busy machine makes: clocks and samples; no count of bytes."""
    raw = derive(with_loss("recursion_syscall_exit", 0, "calls"))
    said = next_step([reason], BUSY, 3.0, typed(raw).hooks)
    assert step in said and said != OTHERWISE
    assert ("idle" in said) == ("idle" in step)
