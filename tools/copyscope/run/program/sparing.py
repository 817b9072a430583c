"""A program that makes many small calls: each of them is counted in a part of the time only. Pure.

While the hooks at its calls are away its bytes are TCP's own counts, to the byte. How many calls these were
follows from the calls that were counted: an estimate, and marked as one.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any

from copyscope.record.program.segments import KEY, SUMMED, key_of, subtract_volume

Row = dict[str, Any]
Pair = tuple[int, int]  # sent, received

# What a hook at a call takes, and what all of them may take of one CPU (docs/dev/notes.md, "What is always
# attached").
HOOK_NS = 90
ALWAYS_SHARE = 0.005
# The same where each call is counted and timed, for a part of the time; the least of what it may take.
TIMED_NS = 500
TIMED_SHARE = 0.005
# At most so much of the time, as in any run.
DUTY_MOST = 0.05
# Of TCP's states: the peer has ended, and the program may have read that end: it has a number in the stream.
PEER_ENDED = (8, 9, 11)
MOVED = (("send", "sent"), ("receive", "received"))


def hooks_share(calls: int, elapsed_s: float) -> float:
    """Of one CPU, what the hooks take while they count each call."""
    return calls * HOOK_NS / (elapsed_s * 1e9) if elapsed_s > 0 else 0.0


def duty(calls: int, elapsed_s: float, untimed_per_s: float = 0.0) -> float:
    """For which part of the time each call is counted and timed.

    `untimed_per_s`: how many it makes a second while they are not; what it makes fewer it loses to that. A
    program that sleeps at each call loses far more than TIMED_NS a call: hooks see each switch, too.
    """
    if elapsed_s <= 0:
        return DUTY_MOST
    share = calls * TIMED_NS / (elapsed_s * 1e9)
    if untimed_per_s:
        share = max(share, 1 - calls / elapsed_s / untimed_per_s)
    return min(DUTY_MOST, TIMED_SHARE / share) if share else DUTY_MOST


def next_time_s(began_s: float, ended_s: float, part: float) -> float:
    """When the calls are to be counted again; they were between the two, hooks that come and go included."""
    return ended_s + (ended_s - began_s) * (1 / part - 1)


class Sockets:
    """What TCP has counted of the program's sockets since it is watched; those that ended included."""

    def __init__(self, gone: Pair) -> None:
        """`gone`: what moved over sockets that are closed already."""
        self._gone = gone
        self._open: dict[int, Pair] = {}
        self._others: set[int] = set()
        # Of sockets that are older than the watching: what TCP had counted when it began.
        self._began: dict[int, Pair] = {}

    def begin(
        self,
        seen: Mapping[int, Any],
        hooked: Mapping[int, Pair],
        old: Collection[int],
        moved_before: Callable[[int], Pair | None],
    ) -> None:
        """`hooked`: what the hooks have counted of each, as long as they were there.

        `moved_before`: what one that is `old` had moved at most, by an earlier look, for it went on between
        the last hook and this one.
        """
        for inode, connection in seen.items():
            now = counts_of(connection)
            if inode in old:
                began = _less(now, hooked.get(inode, (0, 0)))
                first = moved_before(inode) or began
                self._began[inode] = min(began[0], first[0]), min(began[1], first[1])
            if inode in hooked:
                self._open[inode] = now

    def find_new(self, seen: Mapping[int, Any], owned: Callable[[], Collection[int]]) -> None:
        """After a look at all; `owned` says whose sockets the program has open, and is asked for new ones."""
        self._others &= seen.keys()
        if new := seen.keys() - self._open.keys() - self._others:
            mine = owned()
            self._others |= new.difference(mine)
            self._open |= dict.fromkeys(new.intersection(mine), (0, 0))

    def add(self, seen: Mapping[int, Any], ended: Mapping[int, Pair]) -> None:
        """One more look: what they have moved by now, and which of them have ended."""
        self._open |= {inode: counts_of(seen[inode]) for inode in self._open.keys() & seen.keys()}
        for inode, counts in ended.items():
            # One that is seen all the same is shut, and its file still open.
            if inode not in seen:
                self._open.pop(inode, None)
                sent, received = _less(counts, self._began.pop(inode, (0, 0)))
                self._gone = self._gone[0] + sent, self._gone[1] + received

    @property
    def open(self) -> Collection[int]:
        """Those of the program, by inode."""
        return self._open.keys()

    def moved(self) -> dict[int, Pair]:
        """Of those that are open, by inode."""
        return {inode: _less(now, self._began.get(inode, (0, 0))) for inode, now in self._open.items()}

    def total(self) -> Pair:
        sent, received = map(sum, zip(self._gone, *self.moved().values(), strict=True))
        return sent, received


def _less(one: Pair, other: Pair) -> Pair:
    return one[0] - other[0], one[1] - other[1]


def exceeds(connection: Any, hooked: Pair) -> bool:
    """Whether TCP has counted more, either way."""
    return any(tcp > ours for tcp, ours in zip(counts_of(connection), hooked, strict=True))


def counts_of(connection: Any) -> Pair:
    read_end = connection.state_number in PEER_ENDED and connection.receive_queue_bytes == 0
    return connection.written, connection.taken - read_end


class Books:
    """Readings of the hooks, completed by what TCP counted while they were away: totals that only grow.

    What TCP counted beyond what is in the books is divided among the calls as the counted bytes are.
    """

    def __init__(self, reading: Row) -> None:
        self._last = reading["volume"]
        self._counted = {key_of(row): _copy(row) for row in self._last}
        self._estimated: dict[tuple[str, ...], Row] = {}

    def add(self, reading: Row, tcp: Pair | None) -> Row:
        """The same reading with whole totals. `tcp`: None where the hooks have counted since the last one."""
        if tcp is None:
            for row in subtract_volume(reading["volume"], self._last):
                _add(self._counted, row, 1.0)
        self._last = reading["volume"]
        for direction, total in zip(MOVED, tcp or (), strict=False):
            self._divide(direction[0], total - self._booked(direction[0]))
        made = {**reading, "volume": self._rows(), "estimate": self._estimate(), "estimated": tcp is not None}
        return {**made, "hooked": reading["volume"], "counts_taken": False}

    def _estimate(self) -> Row:
        """How much of the totals TCP alone counted: bytes, and the calls that they may have been."""
        parts = [
            (name, row) for row in self._estimated.values() for d, name in MOVED if d == row["direction"]
        ]
        return {
            f"{name}_{key}": round(sum(row[key] for n, row in parts if n == name))
            for _, name in MOVED
            for key in ("bytes", "calls")
        }

    def _booked(self, direction: str) -> int:
        parts = (*self._counted.values(), *self._estimated.values())
        return sum(int(row["bytes"]) for row in parts if row["direction"] == direction)

    def _divide(self, direction: str, moved: int) -> None:
        """Whole bytes; of calls parts, which add up."""
        if moved <= 0:
            return
        mix = [row for row in self._counted.values() if row["direction"] == direction and row["bytes"]]
        mix = mix or [_nothing("tcp", direction, "other")]
        whole = sum(row["bytes"] for row in mix)
        shares = [moved * row["bytes"] // whole if whole else 0 for row in mix]
        shares[-1] += moved - sum(shares)
        for row, share in zip(mix, shares, strict=True):
            _add(self._estimated, {**row, "bytes": share}, share / row["bytes"] if row["bytes"] else 0.0)

    def _rows(self) -> list[Row]:
        rows = {key: _copy(row) for key, row in self._counted.items()}
        for row in self._estimated.values():
            _add(rows, row, 1.0)
        return [_whole(row) for row in rows.values()]


def _nothing(*key: str) -> Row:
    return {**dict(zip(KEY, key, strict=True)), **dict.fromkeys(SUMMED, 0), "largest_bytes": 0, "sizes": []}


def _copy(row: Row) -> Row:
    return {**row, "sizes": [list(one) for one in row["sizes"]]}


def _add(rows: dict[tuple[str, ...], Row], row: Row, factor: float) -> None:
    """The bytes as they are, all other counts times the factor."""
    into = rows.setdefault(key_of(row), _nothing(*key_of(row)))
    for name in SUMMED:
        into[name] += row[name] if name == "bytes" else row[name] * factor
    into["largest_bytes"] = max(into["largest_bytes"], row["largest_bytes"])
    sizes = dict(map(tuple, into["sizes"]))
    for low, count in row["sizes"]:
        sizes[low] = sizes.get(low, 0) + count * factor
    into["sizes"] = [list(one) for one in sorted(sizes.items())]


def _whole(row: Row) -> Row:
    counts = {name: round(row[name]) for name in SUMMED}
    return {**row, **counts, "sizes": [[low, round(count)] for low, count in row["sizes"]]}
