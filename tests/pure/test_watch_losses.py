# SPDX-License-Identifier: GPL-2.0-only
"""Losses of a watch with too many processes or sockets are on every screen and in the verdict."""

import io
from typing import Any

from builders.documents import derive, typed_whole
from builders.watched import watched_record
from copyscope.show import first_screen, live, watch
from rich.console import Console

Record = dict[str, Any]


def screens(record: Record) -> tuple[str, str, str]:
    """Return the full report, the first screen, and a line of the live view."""
    full_report, first = (
        Console(file=io.StringIO(), width=160, height=50, color_system=None, force_terminal=True)
        for _ in range(2)
    )
    watch.render(typed_whole(record), verbose=False, console=full_report)
    first_screen.render(typed_whole(record), first)
    assert isinstance(full_report.file, io.StringIO) and isinstance(first.file, io.StringIO)
    return full_report.file.getvalue(), first.file.getvalue(), live.log_line(typed_whole(record))


def test_uncounted_processes_make_a_run_invalid() -> None:
    """The work of such a process is unknown."""
    raw = watched_record()
    raw["loss"]["watch_process_map_full"] = 3
    full = derive(raw)
    assert full["verdict"]["reasons"] == ["loss: watch_process_map_full: 3 of an unknown number"]
    assert not full["verdict"]["valid"]
    full_report, first, line = screens(full)
    assert "\nlosses        watch_process_map_full 3" in full_report and "INVALID RUN" in full_report
    assert "; lost: 3 watch_process_map_full\n" in first
    assert "; lost watch_process_map_full 3" in line


def test_screens_say_that_nothing_was_lost() -> None:
    raw = watched_record()
    raw["loss"] |= {"watch_process_map_full": 0}
    full = derive(raw)
    assert full["verdict"]["valid"]
    full_report, first, line = screens(full)
    assert "\nlosses        none; 2 loss counters read, all zero\n" in full_report
    assert "; nothing lost\n" in first and "lost" not in line
