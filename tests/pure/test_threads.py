# SPDX-License-Identifier: GPL-2.0-only
"""CPU time by thread, by the name that a thread had when it was sampled."""

from typing import Any

import pytest
from builders.documents import derive, typed_whole, validate
from builders.watched import watched_record
from copyscope.base.errors import UsageError
from copyscope.commands.watch_arguments import parse
from copyscope.show import first_screen, watch
from copyscope.taxonomy.samples import THREADS_MAX, thread_names
from copyscope.taxonomy.taxonomy import Taxonomy
from rich.console import Console

Record = dict[str, Any]


def sample(thread: str, count: int, *frames: str, copy: str | None = None) -> Any:
    row: Record = {"side": "target", "event": "cpu-clock", "frames": frames, "thread": thread, "copy": copy}
    return row | {"samples": count, "weight": 1000 * count}


def test_samples_are_added_up_by_thread_name_and_account() -> None:
    rows = [
        sample("io-1", 30, "rep_movs_alternative", "_copy_from_iter", "tcp_sendmsg_locked"),
        sample("io-1", 10),
        sample("main", 20, copy="memmove"),
        {**sample("x", 5, "net_rx_action"), "side": "other"},
    ]
    del rows[-1]["thread"]
    assert [
        (row["thread"], row["samples"], row["weights"]) for row in thread_names(rows, Taxonomy.load())
    ] == [
        ("io-1", 40, {"copy_in": 30_000, "user": 10_000}),
        ("main", 20, {"gather": 20_000}),
    ]


def test_only_the_busiest_of_thousands_of_thread_names_are_kept() -> None:
    rows = [sample(f"t{number}", 2 + (number == 4999)) for number in range(5000)]
    named = thread_names(rows, Taxonomy.load())
    assert len(named) == THREADS_MAX + 1
    assert {"t4999", ""} <= {row["thread"] for row in named}
    assert sum(row["samples"] for row in named) == sum(row["samples"] for row in rows)


def with_threads(count: int) -> Record:
    record = watched_record()
    (event,) = {row["event"] for row in record["samples"]} & {"cpu-clock"} or {record["samples"][0]["event"]}
    weights = {"copy_in": 250, "gather": 0, "user": 750}
    record["threads"] = [
        {"event": event, "thread": f"io-{number}", "samples": 10, "weights": weights}
        for number in range(count)
    ]
    return derive(record)


def test_threads_are_shown_on_the_first_screen_and_by_v() -> None:
    full = with_threads(40)
    assert validate(full) == []
    console = Console(width=80, height=24, color_system=None, force_terminal=True, record=True)
    first_screen.render(typed_whole(full), console, by_thread=True)
    shown = console.export_text()
    assert "io-0" in shown and "more names" in shown and "THE PATH" not in shown
    assert len(shown.splitlines()) <= 24
    console = Console(width=100, color_system=None, record=True)
    watch.render(typed_whole(full), verbose=False, console=console)
    assert "BY THREAD" in console.export_text()


def test_a_record_without_threads_asks_to_measure_again() -> None:
    console = Console(width=80, height=24, color_system=None, force_terminal=True, record=True)
    first_screen.render(typed_whole(derive(watched_record() | {"threads": None})), console, by_thread=True)
    assert "not in this record" in console.export_text()


@pytest.mark.parametrize("option", ["--live", "--advise"])
def test_by_thread_is_a_screen_of_its_own(option: str) -> None:
    with pytest.raises(UsageError, match="--by thread"):
        parse([option, "--by", "thread", "--pid", "1"])
