# SPDX-License-Identifier: GPL-2.0-only
"""Snapshots of a program's connections: only the first and last are kept, however many are taken."""

from types import SimpleNamespace

from copyscope.record import session_result
from copyscope.record.session_result import Connections


def tcp(written: int, busy_ms: int = 0) -> SimpleNamespace:
    return SimpleNamespace(
        established=True,
        local="192.0.2.2:80",
        peer="192.0.2.1:40000",
        written=written,
        taken=0,
        mss_bytes=1448,
        bytes_retrans=0,
        busy_us=busy_ms * 1000,
        rwnd_limited_us=0,
        sndbuf_limited_us=0,
    )


def add_snapshot(connections: Connections, inodes: range, written: int) -> None:
    """Add a snapshot. TCP counts 10 bytes less before the hooks' counts are read, and 10 more after it."""
    counted = {str(inode): [written, 0] for inode in inodes}
    before = {inode: tcp(written - 10) for inode in inodes}
    connections.add(before, counted, {inode: tcp(written + 10, written // 1000) for inode in inodes})


def test_the_first_and_last_of_a_thousand_snapshots_are_kept() -> None:
    connections = Connections()
    for second in range(1000):
        add_snapshot(connections, range(1, 4), 1_000_000 + second * 5000)
    rows = connections.rows()
    assert len(rows) == 3
    for row in rows:
        assert (row.snapshots, row.sent_bytes) == (1000, 999 * 5000)
        assert (row.sent_inner_bytes, row.sent_outer_bytes) == (999 * 5000 - 20, 999 * 5000 + 20)
        # busy time since the start of the connection: 0 before the first reading, 5,995 ms after the last
        assert row.busy_ms == 5995


def test_short_connections_do_not_fill_memory() -> None:
    """Each snapshot has 100 new connections. Only the newest connections are kept."""
    kept_max = session_result.KEPT_MAX
    assert kept_max == 16384
    connections = Connections()
    for second in range(1000):
        add_snapshot(connections, range(1 + 100 * second, 101 + 100 * second), 1000)
    assert len(connections._ends) <= kept_max
    # A lasting connection still gets a row.
    add_snapshot(connections, range(10**9, 10**9 + 1), 1000)
    add_snapshot(connections, range(10**9, 10**9 + 1), 2000)
    assert [row.sent_bytes for row in connections.rows()] == [1000]


def test_lasting_connections_have_rows_up_to_the_limit() -> None:
    connections = Connections()
    for written in (0, 7000):
        add_snapshot(connections, range(1, session_result.KEPT_MAX + 1001), written)
    assert len(connections.rows()) == session_result.KEPT_MAX
    assert {row.sent_bytes for row in connections.rows()} == {7000}
