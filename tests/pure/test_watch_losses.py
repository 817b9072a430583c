"""What the instruments of a watched program had no room for is named on every screen, and judged."""

import io
from typing import Any

import pytest
from builders.watched import watched_record
from copyscope.ledger.derive import derive
from copyscope.render import first_screen, live, watch
from rich.console import Console

Record = dict[str, Any]


def screens(record: Record) -> tuple[str, str, str]:
    """The whole report, the first screen, and a line of the live view."""
    whole, first = (
        Console(file=io.StringIO(), width=160, height=50, color_system=None, force_terminal=True)
        for _ in range(2)
    )
    watch.render(record, verbose=False, console=whole)
    first_screen.render(record, first)
    assert isinstance(whole.file, io.StringIO) and isinstance(first.file, io.StringIO)
    return whole.file.getvalue(), first.file.getvalue(), live.line_of(record)


@pytest.mark.parametrize(
    ("name", "lost", "said", "reason"),
    [
        # Of a process without a place nobody knows how much it did.
        ("watch_process_map_full", 3, "3", "3 of an unknown number"),
        ("samples_threads_untimed", {"count": 45, "of": 301}, "45 of 301", "45 of 301: more than 0.1 %"),
        # Of three thousand threads one without a timer changes no share: it is told, and spoils nothing.
        ("samples_threads_untimed", {"count": 1, "of": 3001}, "1 of 3,001", None),
    ],
)
def test_processes_without_a_place_and_threads_without_a_timer_are_named_and_judged(
    name: str, lost: Any, said: str, reason: str | None
) -> None:
    raw = watched_record()
    raw["loss"][name] = lost
    full = derive(raw)
    assert full["verdict"]["reasons"] == ([f"loss: {name}: {reason}"] if reason else [])
    assert full["verdict"]["valid"] is (reason is None)
    whole, first, line = screens(full)
    assert f"\nlosses        {name} {said}" in whole
    assert ("INVALID RUN" in whole) is (reason is not None)
    assert f"; lost: {said} {name}\n" in first
    assert f"; lost {name} {said.partition(' ')[0]}" in line


def test_where_there_was_room_for_all_nothing_is_said_to_be_lost() -> None:
    raw = watched_record()
    raw["loss"] |= {"watch_process_map_full": 0, "samples_threads_untimed": {"count": 0, "of": 301}}
    full = derive(raw)
    assert full["verdict"]["valid"]
    whole, first, line = screens(full)
    assert "\nlosses        none; 3 loss counters read, all zero\n" in whole
    assert "; nothing lost\n" in first and "lost" not in line
