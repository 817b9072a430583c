# SPDX-License-Identifier: GPL-2.0-only
"""Bytes that go through pipes to sockets (pipes.c): doubled, mixed, moved by threads that exit."""

import json
from pathlib import Path
from typing import Any

import pytest
from copyscope.base import paths
from profiling import broken_identities, in_all, is_root
from programs import bytes_of, hook_state, watch

Record = dict[str, Any]

PIPES = paths.OUTPUT / "tests" / "pipes"
# A prime number, so that no other count is mistaken for it.
MESSAGES = 1499
UNSUPPORTED_STATUS = 77
# Key of the program's counts -> system call in the record.
WAYS = {
    "copied": "sendto",
    "packets": "splice between sockets",
    "memory": "splice after vmsplice",
    "written": "splice after write",
    "file": "splice",
}

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(not is_root(), reason="needs root to load BPF"),
    pytest.mark.skipif(
        not PIPES.exists(), reason=f"needs {PIPES.name}: make {PIPES.relative_to(paths.ROOT)}"
    ),
]


def added(record: Record, direction: str, syscall: str) -> int:
    rows = record["volume"]
    return sum(row["bytes"] for row in rows if (row["direction"], row["syscall"]) == (direction, syscall))


@pytest.mark.parametrize(
    "how",
    [
        "tee",
        *map(in_all, ("tee_read", "two_pipes", "tee_mixed", "uring_tee", "threads", "child", "read_out")),
    ],
)
def test_each_byte_that_went_through_a_pipe_is_in_its_row(how: str, tmp_path: Path) -> None:
    report = tmp_path / how
    record = watch("--whole", "--", str(PIPES), how, str(MESSAGES), str(report), check=None)
    if record["target"]["status"] == UNSUPPORTED_STATUS:
        pytest.skip(f"this kernel cannot do {how}")
    if hook_state(record, "volume_sent_at_exit") == "attached":
        pytest.skip("before 6.5 the pages have left the pipe before a hook sees the send")
    truth: dict[str, int] = json.loads(report.read_text())
    assert {key: added(record, "send", call) for key, call in WAYS.items()} == {
        key: truth[key] for key in WAYS
    }
    assert added(record, "receive", "splice from a socket") == truth["spliced"]
    assert added(record, "receive", "recvfrom") == bytes_of(record, "copy_out") == truth["received"]
    assert bytes_of(record, "copy_in") == truth["copied"]
    assert bytes_of(record, "pin") == sum(truth[key] for key in WAYS) - truth["copied"]
    assert broken_identities(record) == []
