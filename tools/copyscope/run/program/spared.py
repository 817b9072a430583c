"""What a program has moved so far: by hooks at its calls or, while it is spared them, by TCP's own counts."""

import time
from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from copyscope.plan.run_plan import RunPlan
from copyscope.record.program.segments import counted_between, why_uncounted
from copyscope.run.child import Message, Program
from copyscope.run.program import pace, processes
from copyscope.run.program.connections import Connection, Snapshots
from copyscope.run.program.followed import Followed
from copyscope.run.program.seen import Seen
from copyscope.run.program.sparing import (
    ALWAYS_SHARE,
    Books,
    Pair,
    Sockets,
    duty,
    exceeds,
    hooks_share,
    next_time_s,
)

ASK_S = 60.0
# A look at all connections stands at each end of a segment then: what takes longer costs more than the hooks.
LOOK_MOST_S = 0.003
TRIES = 3
# To ask for more connections one by one takes longer than the kernel takes for all.
AGAIN_MOST = 256
# A reading that is not older stands for one of now: no more than that is added to what the checks tolerate.
JUST_NOW_NS = 2_000_000
# The hook that counts new ones is skipped where it interrupts itself (bpf/volume.bpf.c): once in 400,000.
WHOLE_EVERY_S = 5.0
# Where the hooks at the calls come and go they come with these; what is copied out is counted beside them.
COUNTING = ("calls", "copies", "volume")
Look = Callable[[], dict[int, Connection] | None]


class Looked(NamedTuple):
    """What each connection has moved, and TCP's own counts before and after that was read."""

    earlier: dict[int, Connection] | None
    ours: dict[str, list[int]]
    later: dict[int, Connection] | None
    counts_taken: bool = False


class Spared:
    """probes() and read() are for every segment; consider() after one decides about the next ones."""

    def __init__(
        self,
        plan: RunPlan,
        seen: Seen,
        collector: Program,
        followed: Followed,
        look: Look,
        *,
        snapshots: Snapshots,
        began: bool,
    ) -> None:
        """`began`: the program begins with the first segment, and so do all of its sockets."""
        self._plan, self._seen, self._collector, self._followed = plan, seen, collector, followed
        self._look_at, self._snapshots, self._began = look, snapshots, began
        # The program's connections at the last whole look, and how many the machine had made by then.
        self._known: dict[int, Connection] = {}
        self._established = 0
        self._established_then: int | None = None
        self._whole_due_s = 0.0
        self._tries = 0 if plan.functions or plan.whole else TRIES
        self._sockets: Sockets | None = None
        self._books: Books | None = None
        self._spared = False
        self._ended: dict[int, Pair] = {}
        self._last: Message | None = None
        self._began_s = self._due_s = self._untimed_per_s = 0.0

    def skips(self, arm: Any) -> bool:
        """Whether it is too soon for a segment that counts each call."""
        return self._spared and "calls" in self._plan.probes[arm] and time.monotonic() < self._due_s

    def probes(self, arm: Any) -> tuple[str, ...]:
        """What a segment attaches."""
        probes = self._plan.probes[arm]
        if not self._spared:
            return probes
        self._began_s = time.monotonic()
        rest = tuple(name for name in probes if name not in COUNTING)
        return COUNTING + rest if "calls" in probes else rest

    def ask(self) -> Message:
        """What the hooks have counted so far."""
        return self.note(self._collector.ask("volume", "volume", ASK_S))

    def note(self, reading: Message) -> Message:
        """The same, of an answer that has it: what it says of sockets that were closed it says once."""
        self._ended |= {int(inode): (sent, received) for inode, (sent, received) in reading["ended"].items()}
        self._established = reading["totals"]["established"]
        return reading

    def read(self, reading: Message | None = None) -> Message:
        """The same, of now or of a `reading` that is there, completed where the hooks are away."""
        reading = self.ask() if reading is None else reading
        if self._books is not None and self._spared:
            tcp = self._total()
            reading = self._books.add({**reading, "t_ns": time.monotonic_ns()}, tcp)
        elif self._books is not None:
            reading = self._books.add(reading, None)
        self._last = reading
        return reading

    def read_before(self) -> Message:
        """Before a segment. Between two segments nothing comes or goes: the last reading will do.

        Where the hooks count it must be of just now: what moves meanwhile the checks cannot tell.
        """
        return self._last if self._spared and self._last is not None else self.read_now()

    def read_now(self) -> Message:
        """A reading that is not older than JUST_NOW_NS."""
        return self.read() if self._last is None or _age_ns(self._last) >= JUST_NOW_NS else self._last

    def is_of_now(self, end: Message) -> bool:
        """Whether the mark at the end of a segment is also that of the next one's begin."""
        return self._spared and "tcp" not in end and _age_ns(end) < JUST_NOW_NS

    def read_after(self, reading: Message) -> Message:
        """After a segment, of `reading`.

        Where no hook has counted in it, TCP can tell later what has moved since its end: to ask takes 0.4 ms
        from whoever waits for the CPU.
        """
        self.note(reading)
        if self._spared and self._last is not None and "tcp" not in self._last:
            return self._last
        return self.read(reading)

    def read_between(self, *, since: bool) -> Message:
        """While the hooks count; TCP is asked before and after. `since`: they have since the last one."""
        assert self._books is not None
        first = self._total()
        reading = self.ask()
        booked = self._books.add(reading, None if since else first)
        self._last = {**booked, "tcp": tuple(zip(first, self._total(), strict=True))}
        return self._last

    def consider(self, begin: Message, end: Message) -> None:
        """After a segment."""
        elapsed_s = (end["t_ns"] - begin["t_ns"]) / 1e9
        if self._spared and "tcp" not in end:
            self._untimed_per_s = pace.calls(begin, end) / elapsed_s if elapsed_s > 0 else 0.0
            return
        why = why_uncounted(end["hooked"] if self._spared else end["volume"])
        if self._spared:
            if why is not None:
                self._end(why)
        elif why is None and self._tries:
            share = hooks_share(pace.calls(begin, end), elapsed_s)
            if share > ALWAYS_SHARE:
                self._tries -= 1
                self._begin(share)
        if self._spared:
            self._seen.counted.append(counted_between(begin, end))
        # One is no interval: the second comes soon.
        if len(self._seen.counted) > 1:
            part = duty(pace.calls(begin, end), elapsed_s, self._untimed_per_s)
            self._due_s = next_time_s(self._began_s, time.monotonic(), part)

    def look_around(self) -> Looked:
        """At all connections, and at what we know of each. Once it was spared, we know what TCP says."""
        if self._sockets is not None:
            seen = self._look_at_sockets()
            moved = {str(inode): list(pair) for inode, pair in self._sockets.moved().items()}
            return Looked(seen, moved, seen)
        earlier = self._look_at()
        told = self._collector.ask("sockets", "sockets", ASK_S)
        ours = told["sockets"]
        return Looked(earlier, ours, self._look_after(earlier, ours), told["counts_taken"])

    def peers(self) -> list[Message]:
        """Those that the hooks noted while the sockets were there; a short program has none any more."""
        peers: list[Message] = self._collector.ask("peers", "peers", ASK_S)["peers"]
        return peers

    def _look_after(
        self, earlier: dict[int, Connection] | None, ours: Collection[str]
    ) -> dict[int, Connection] | None:
        """The second look of two, at those of `ours` alone (by inode) that the `earlier` one has.

        To walk the kernel's table again costs as much as the first time: others' connections are in it, too,
        and those that are closed and wait for their time to be over (TIME_WAIT).
        """
        used = [earlier[int(inode)] for inode in ours if int(inode) in earlier] if earlier else []
        found = self._snapshots.again(used) if len(used) <= AGAIN_MOST else None
        return self._look_at() if found is None else found

    def _begin(self, share: float) -> None:
        began_s = time.process_time()
        seen = self._look()
        hooked = self._hooked()
        if time.process_time() - began_s > 2 * LOOK_MOST_S or not hooked.keys() <= seen.keys():
            return
        old = self._old(seen, hooked)
        self._collector.ask("spare on", "spare", ASK_S)
        self.note(self._collector.ask("close", "closed", ASK_S)["volume"])
        # Nothing counts any more: the two are of one moment.
        hooked, reading = self._hooked(), self.ask()
        rows = [row for row in reading["volume"] if row["direction"] in ("send", "receive")]
        gone = [
            sum(row["bytes"] for row in rows if row["direction"] == direction)
            - sum(moved[number] for moved in hooked.values())
            for number, direction in enumerate(("send", "receive"))
        ]
        self._sockets = Sockets((gone[0], gone[1]))
        seen = self._look()
        self._sockets.begin(seen, hooked, old, self._seen.connections.moved_before)
        self._note(seen)
        # Of these the hooks have counted all, and they are among those that are closed.
        self._ended = {inode: moved for inode, moved in self._ended.items() if inode in hooked}
        self._books, self._spared, self._last = Books(reading), True, None
        self._seen.spared = f"to count each call would take {100 * share:.1f} % of a CPU"

    def _old(self, seen: dict[int, Connection], hooked: dict[int, Pair]) -> Collection[int]:
        """The connections that the hooks have not counted from their first byte on, by inode.

        `seen` is older than `hooked`: what TCP has more was sent before the hooks came, or before the process
        was found.
        """
        if self._began:
            return ()
        before = self._seen.before
        known = before[-1].moved_bytes if before else self._seen.connections.old or ()
        return {*known, *(inode for inode, at in seen.items() if exceeds(at, hooked.get(inode, (0, 0))))}

    def _end(self, why: str) -> None:
        """It does now what TCP does not count: from here on each call is counted again."""
        self._collector.ask("spare off", "spare", ASK_S)
        self.note(self._collector.ask("open volume", "opened", ASK_S)["volume"])
        self.read()
        self._spared, self._tries, self._last = False, 0, None
        self._seen.spared_until = why

    def _hooked(self) -> dict[int, Pair]:
        told = self._collector.ask("sockets", "sockets", ASK_S)["sockets"]
        return {int(inode): (sent, received) for inode, (sent, received) in told.items()}

    def _look(self) -> dict[int, Connection]:
        """Nothing where the program's namespace has gone: what its sockets had moved is known from before."""
        return self._look_at() or {}

    def _total(self) -> Pair:
        assert self._sockets is not None
        self._look_at_sockets()
        return self._sockets.total()

    def _look_at_sockets(self) -> dict[int, Connection]:
        """The program's connections, and those of others where all had to be looked at."""
        assert self._sockets is not None
        ended, self._ended = self._ended, {}
        seen = self._look_again()
        if seen is None:
            seen = self._look()
            self._sockets.find_new(seen, lambda: processes.sockets_of(self._followed.pids))
            self._note(seen)
        self._sockets.add(seen, ended)
        return seen

    def _look_again(self) -> dict[int, Connection] | None:
        """At the program's connections alone; None where another may have come."""
        if self._established != self._established_then or time.monotonic() > self._whole_due_s:
            return None
        return self._snapshots.again(self._known.values())

    def _note(self, seen: dict[int, Connection]) -> None:
        """After a look at all: a connection made since the last reading is on top of that reading's count."""
        assert self._sockets is not None
        self._known = {inode: seen[inode] for inode in self._sockets.open if inode in seen}
        settled = self._snapshots.accepted and len(self._known) <= AGAIN_MOST
        self._established_then = self._established if settled else None
        self._whole_due_s = time.monotonic() + WHOLE_EVERY_S


def _age_ns(reading: Message) -> int:
    age_ns: int = time.monotonic_ns() - reading["t_ns"]
    return age_ns
