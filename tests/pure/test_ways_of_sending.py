# SPDX-License-Identifier: GPL-2.0-only
"""Counts of the ways in which a watched program sends: a part is never larger than its whole."""

from typing import Any

import pytest
from builders.documents import derive
from builders.watched import CALLS, EDGE_CALLS, SIZE, splicing_record, watched_record

Record = dict[str, Any]

SEGMENTS = 9
# Calls while hooks are attached or detached, and a call of one thread at each end of a segment.
TOLERANCE_BYTES = SEGMENTS * (2 * EDGE_CALLS + 2) * SIZE
MIB = 1 << 20


def check(raw: Record, name: str) -> Record:
    return next(row for row in derive(raw)["identities"] if row["name"] == name)


def sends(raw: Record) -> list[Record]:
    return [row for row in raw["volume"] if row["direction"] == "send"]


@pytest.mark.parametrize(("more", "holds"), [(0, True), (1, False)])
def test_zero_copy_bytes_are_a_part_of_the_bytes_of_their_call(more: int, holds: bool) -> None:
    raw = watched_record(zerocopy=True)
    sends(raw)[0]["zerocopy_bytes"] += TOLERANCE_BYTES + more
    assert check(raw, "zerocopy_bytes")["holds"] is holds
    assert derive(raw)["verdict"]["valid"] is holds


def test_zero_copy_bytes_of_one_call_do_not_hide_in_another() -> None:
    """Half of the bytes went by write(2). The flag was counted for all bytes, as those of sendmsg(2)."""
    raw = watched_record(zerocopy=True)
    for row in sends(raw):
        half = row["bytes"] // 2
        raw["volume"].append(row | {"syscall": "write", "bytes": half, "zerocopy_bytes": 0})
        row["bytes"] -= half
    found = check(raw, "zerocopy_bytes")
    assert (found["left"], found["right"]) == (SEGMENTS * CALLS * SIZE, SEGMENTS * CALLS * SIZE // 2)
    assert found["holds"] is False and check(raw, "ways_of_sending")["holds"] is True


def test_zero_copy_and_pages_add_up_to_all_bytes_at_most() -> None:
    """Pages of a file that are counted as zero-copy, too, once made 114 %."""
    raw = watched_record(call="sendfile")
    sent_bytes = SEGMENTS * CALLS * SIZE
    found = check(raw, "ways_of_sending")
    assert (found["left"], found["right"], found["holds"]) == (sent_bytes, sent_bytes, True)
    for row in sends(raw):
        row["zerocopy_bytes"] = row["bytes"] * 14 // 100
    found = check(raw, "ways_of_sending")
    assert (found["left"], found["right"]) == (sent_bytes * 114 // 100, sent_bytes)
    assert found["holds"] is False and check(raw, "zerocopy_bytes")["holds"] is True


@pytest.mark.parametrize(
    ("missing_bytes", "holds"),
    [
        (0, True),
        # A pipe of the only thread may be full at the start of each segment.
        (3 * MIB, True),
        (3 * CALLS * SIZE * 31 // 100, False),
        # The relay may drop what it receives.
        (-3 * CALLS * SIZE, True),
    ],
)
def test_a_relay_splices_on_what_it_received(missing_bytes: int, holds: bool) -> None:
    raw = splicing_record()
    (received,) = (r for r in raw["volume"] if (r["direction"], r["phase"]) == ("receive", "ledger"))
    received["bytes"] -= missing_bytes
    assert check(raw, "spliced_on")["holds"] is holds


def test_splices_before_their_hook_are_tolerated() -> None:
    raw = splicing_record()
    (received,) = (r for r in raw["volume"] if (r["direction"], r["phase"]) == ("receive", "ledger"))
    received["bytes"] -= 200 * SIZE
    assert check(raw, "spliced_on")["holds"] is False
    raw["loss"]["splices_before_their_hook"] = 200
    assert check(raw, "spliced_on")["holds"] is True


def test_a_relay_may_send_what_tee_doubled() -> None:
    """Half of what it sends was taken from a socket, and doubled by tee(2)."""
    raw = splicing_record()
    (received,) = (r for r in raw["volume"] if (r["direction"], r["phase"]) == ("receive", "ledger"))
    received["bytes"] //= 2
    assert check(raw, "spliced_on")["holds"] is False
    raw["volume"].append(received | {"protocol": "pipe", "direction": "teed", "syscall": "tee"})
    assert check(raw, "spliced_on")["holds"] is True


def test_programs_without_these_ways_have_no_such_check() -> None:
    names = {row["name"] for row in derive(watched_record())["identities"]}
    assert names.isdisjoint({"zerocopy_bytes", "ways_of_sending", "spliced_on"})


def test_a_relay_that_splices_is_valid_and_mentioned() -> None:
    full = derive(splicing_record())
    verdict = full["verdict"]
    assert verdict["valid"], verdict["reasons"]
    assert "100 % of its bytes it spliced from socket to socket, by reference" in verdict["sentence"]
    assert full["portrait"]["send"]["socket_share"] == 1
