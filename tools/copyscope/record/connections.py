"""The connections of a watched program: TCP's own counts around ours, at the first and the last look. Pure.

A look has all connections of a network namespace; of a run of hours only its ends are kept, and of so many
connections at most.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

Row = dict[str, Any]
# As many as the collector tells apart (SOCKETS_MAX, bpf/abi.h).
KEPT_MAX = 16384


class Counts(NamedTuple):
    """What TCP had counted of a connection."""

    written: int
    taken: int
    retransmitted: int
    busy_ms: int
    rwnd_limited_ms: int
    sndbuf_limited_ms: int


class Around(NamedTuple):
    """One reading of ours, [sent, received], between two of TCP's."""

    ours: list[int]
    before: Counts
    after: Counts


@dataclass
class _Ends:
    first: Around
    last: Around
    looks: int
    mss_bytes: int
    local: str
    peer: str


class Connections:
    """add() takes one look; the connections that the program used, each from the first look to the last."""

    def __init__(self) -> None:
        self._ends: dict[str, _Ends] = {}
        # How often it had connections.
        self.looks = 0
        self._counts_taken = False

    def add(
        self,
        earlier: Mapping[int, Any],
        ours: Mapping[str, list[int]],
        later: Mapping[int, Any],
        *,
        counts_taken: bool = False,
    ) -> None:
        """`ours` is what the collector counted by inode, between two looks of TCP's by inode.

        `counts_taken`: with what the program maps or splices, of which a part was not counted before.
        """
        if counts_taken and not self._counts_taken:
            self._counts_taken = True
            self._ends.clear()
            self.looks = 0
        self.looks += bool(ours)
        if len(self._ends) + len(ours) > KEPT_MAX:
            self._forget(ours)
        for inode, counts in ours.items():
            before, after = earlier.get(int(inode)), later.get(int(inode))
            if before is None or after is None or not (before.established and after.established):
                continue
            now = Around(counts, _counts(before), _counts(after))
            ends = self._ends.get(inode)
            if ends is not None:
                ends.last, ends.looks = now, ends.looks + 1
            elif len(self._ends) < KEPT_MAX:
                self._ends[inode] = _Ends(now, now, 1, after.mss_bytes, after.local, after.peer)

    def _forget(self, used: Mapping[str, list[int]]) -> None:
        """Connections that are gone and were seen once say nothing: their places are for others."""
        self._ends = {inode: ends for inode, ends in self._ends.items() if ends.looks > 1 or inode in used}

    def rows(self) -> list[Row]:
        """Each that was seen twice; `inner` is what TCP counted for certain between ours, `outer` at most."""
        return [_row(ends) for ends in self._ends.values() if ends.looks > 1]


def _counts(connection: Any) -> Counts:
    times_us = (connection.busy_us, connection.rwnd_limited_us, connection.sndbuf_limited_us)
    busy, rwnd, sndbuf = (spent_us // 1000 for spent_us in times_us)
    return Counts(connection.written, connection.taken, connection.bytes_retrans, busy, rwnd, sndbuf)


def _row(ends: _Ends) -> Row:
    first, last = ends.first, ends.last
    inner, outer = _less(last.before, first.after), _less(last.after, first.before)
    return {
        "local": ends.local,
        "peer": ends.peer,
        "snapshots": ends.looks,
        "sent_bytes": last.ours[0] - first.ours[0],
        "sent_inner_bytes": inner.written,
        "sent_outer_bytes": outer.written,
        "received_bytes": last.ours[1] - first.ours[1],
        "received_inner_bytes": inner.taken,
        "received_outer_bytes": outer.taken,
        "mss_bytes": ends.mss_bytes,
        "retransmitted_bytes": outer.retransmitted,
        "busy_ms": outer.busy_ms,
        "rwnd_limited_ms": outer.rwnd_limited_ms,
        "sndbuf_limited_ms": outer.sndbuf_limited_ms,
    }


def _less(later: Counts, earlier: Counts) -> Counts:
    return Counts(*(b - a for a, b in zip(earlier, later, strict=True)))
