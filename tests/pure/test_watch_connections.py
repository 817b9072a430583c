"""What is kept of the looks at a program's connections: the ends, however many looks there were."""

from types import SimpleNamespace

from copyscope.record import connections
from copyscope.record.connections import Connections


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


def look(seen: Connections, inodes: range, written: int) -> None:
    """TCP has 10 bytes less before our reading, and 10 more after it."""
    ours = {str(inode): [written, 0] for inode in inodes}
    before = {inode: tcp(written - 10) for inode in inodes}
    seen.add(before, ours, {inode: tcp(written + 10, written // 1000) for inode in inodes})


def test_of_a_thousand_looks_the_first_and_the_last_are_kept() -> None:
    seen = Connections()
    for second in range(1000):
        look(seen, range(1, 4), 1_000_000 + second * 5000)
    rows = seen.rows()
    assert len(rows) == 3
    for row in rows:
        assert (row["snapshots"], row["sent_bytes"]) == (1000, 999 * 5000)
        assert (row["sent_inner_bytes"], row["sent_outer_bytes"]) == (999 * 5000 - 20, 999 * 5000 + 20)
        # busy since the connection began: 0 before the first reading, 5,995 ms after the last
        assert row["busy_ms"] == 5995


def test_a_server_whose_connections_come_and_go_for_an_hour_fills_no_memory() -> None:
    """Each look has 100 others, seen once: all are forgotten but for the newest."""
    most = connections.KEPT_MAX
    assert most == 16384
    seen = Connections()
    for second in range(1000):
        look(seen, range(1 + 100 * second, 101 + 100 * second), 1000)
    assert len(seen._ends) <= most
    # A connection that lasts still finds its place.
    look(seen, range(10**9, 10**9 + 1), 1000)
    look(seen, range(10**9, 10**9 + 1), 2000)
    assert [row["sent_bytes"] for row in seen.rows()] == [1000]


def test_connections_that_last_have_rows_up_to_the_most_that_is_kept() -> None:
    seen = Connections()
    for written in (0, 7000):
        look(seen, range(1, connections.KEPT_MAX + 1001), written)
    assert len(seen.rows()) == connections.KEPT_MAX
    assert {row["sent_bytes"] for row in seen.rows()} == {7000}
