"""What the instruments of a watched program had no room for is named on every screen, and judged."""

import io
from typing import Any

from builders.watched import watched_record
from copyscope.ledger.derive import derive
from copyscope.record.check import typed_whole
from copyscope.show import first_screen, live, watch
from rich.console import Console

Record = dict[str, Any]


def screens(record: Record) -> tuple[str, str, str]:
    """The whole report, the first screen, and a line of the live view."""
    whole, first = (
        Console(file=io.StringIO(), width=160, height=50, color_system=None, force_terminal=True)
        for _ in range(2)
    )
    watch.render(typed_whole(record), verbose=False, console=whole)
    first_screen.render(typed_whole(record), first)
    assert isinstance(whole.file, io.StringIO) and isinstance(first.file, io.StringIO)
    return whole.file.getvalue(), first.file.getvalue(), live.line_of(typed_whole(record))


def test_processes_without_a_place_are_named_and_judged() -> None:
    """Of a process without a place nobody knows how much it did."""
    raw = watched_record()
    raw["loss"]["watch_process_map_full"] = 3
    full = derive(raw)
    assert full["verdict"]["reasons"] == ["loss: watch_process_map_full: 3 of an unknown number"]
    assert not full["verdict"]["valid"]
    whole, first, line = screens(full)
    assert "\nlosses        watch_process_map_full 3" in whole and "INVALID RUN" in whole
    assert "; lost: 3 watch_process_map_full\n" in first
    assert "; lost watch_process_map_full 3" in line


def test_where_there_was_room_for_all_nothing_is_said_to_be_lost() -> None:
    raw = watched_record()
    raw["loss"] |= {"watch_process_map_full": 0}
    full = derive(raw)
    assert full["verdict"]["valid"]
    whole, first, line = screens(full)
    assert "\nlosses        none; 2 loss counters read, all zero\n" in whole
    assert "; nothing lost\n" in first and "lost" not in line
