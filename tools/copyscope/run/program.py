"""A program that copyscope did not write: segments are stretches of time, nothing is paused or altered.

The hooks that count its bytes (`watch` and `volume`) stay attached from the first to the last moment; the
others come and go. A mark is a reading of these counters. One stands on either side of each change, so that
it is known how much moved meanwhile.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self, cast

from copyscope.machine import fingerprint
from copyscope.plan.schedule import Bound, Segment
from copyscope.record.moved import forget
from copyscope.record.session_result import Mark, Totals
from copyscope.record.two_hosts import Message
from copyscope.run import path, processes
from copyscope.run.command import Command, Output, Stop
from copyscope.run.connections import Connection, Snapshots, other_ends
from copyscope.run.counters import COUNTED_S, CPU_LEAST_NS, EVENTS, CountedPart, all_unsupported
from copyscope.run.followed import ASK_S, Followed
from copyscope.run.session import Setup, Subject
from copyscope.run.target import Target
from copyscope.run.user_code import UserCode

# Of a program that ends, at most so much of its CPU time is missed where perf does not count it to its end.
# More often would cost more: each look interrupts the program, or whoever it talks to, and both wait. Twenty
# a second took 3 % of the requests of an nginx that shares two CPUs with its client.
LOOK_EVERY_S = 0.1
LOOK_SELDOM_S = 1.0
# Of one CPU, what looks at all connections take at most.
LOOKS_SHARE = 0.005
# The same of a program that is watched for ever; and what looks for its name take.
FRUGAL_SHARE = 0.001


class WatchedProgram(Subject):
    """Its command may outlast the measurement: wait_for_command().

    `begun` is called when the first segment has begun, with whether there is anybody yet.
    """

    def __init__(
        self,
        target: Target,
        duration_s: float | None,
        *,
        output: Output = "own",
        begun: Callable[[bool], None] = lambda _: None,
        frugal: bool = False,
    ) -> None:
        """`frugal`: for a watch without an end: it is looked at where a segment ends, its code not at all."""
        self.command: Command | None = None
        self._target = target
        self._duration_s = duration_s
        self._output = output
        self._begun: Callable[[bool], None] | None = begun
        # Why the measurement ends, once there is a reason.
        self.stop = Stop()
        self._exit = ExitStack()
        self._snapshots = Snapshots()
        self._frugal = frugal
        self._looks = processes.Seldom(FRUGAL_SHARE if frugal else LOOKS_SHARE)
        self.code = UserCode()
        self._counts = CountedPart()
        # What had been used when perf began to count in this segment.
        self._counting: processes.Use | None = None
        self._settled = True
        self._peers: set[int] = set()
        self._bound: Bound
        # When a segment began with its hooks; the last reading; that at the begin, with what was used.
        self._began_s = 0.0
        self._reading: Totals
        self._at_begin: Totals
        # Of one without a report: when all segments are over.
        self.last: Totals | None = None
        self._followed: Followed

    @property
    def is_command(self) -> bool:
        """Whether the program is started to be watched."""
        return bool(self._target.command)

    def wait_for_command(self) -> int | None:
        """Its exit status; None without one, or of one that never began. Signals are still passed on."""
        return None if self.command is None else self.command.wait(self.stop.sleep)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit.__exit__(kind, value, trace)

    # -- set up ---------------------------------------------------------------------------------------

    def prepare(self, setup: Setup) -> None:
        self.setup, target = setup, self._target
        setup.collector = setup.spawn("collector", setup.plan.collector())
        setup.until.callback(self._snapshots.close)
        if target.command:
            self.command = self._exit.enter_context(Command(target.command, self._output))
            target.started.append(self.command.pid)
        # Beyond the session: a signal while its record is made loses nothing.
        self._exit.callback(self.stop.listen(self.command, lambda: target.find_processes(set())))
        setup.collector.send("symbols", "symbols")
        perfs = setup.perfs if setup.plan.counters and target.follow else None
        self._followed = Followed(target, setup.raw.pids, setup.collector, setup.until, perfs)
        if self._frugal:
            self._followed.searches = processes.Seldom(FRUGAL_SHARE)
        setup.raw.machine = fingerprint.describe(self._namespace())

    def start(self) -> None:
        plan, collector, followed = self.setup.plan, self.setup.collector, self._followed
        self._bound = Bound(self._duration_s, plan.probes)
        collector.expect("symbols", ASK_S)
        collector.ask(f"open {','.join(plan.always)}", "opened", ASK_S)
        # Twice: one that the collector is told of only now may have made children before.
        followed.find(self._volume())
        followed.find(self._volume())
        followed.cpu.read(followed.pids, fresh=False)
        assert self.setup.raw.machine is not None  # prepare() has described it
        processes.put_memlock(self.setup.raw.machine, followed.pids)
        self._describe()
        self._look_at_connections()
        self._find_peers()

    def _find_peers(self) -> None:
        """Whom it talks to on this machine, and in its namespace, when the measurement begins."""
        known = self._snapshots.take(self._namespace().path) or {}
        ends = other_ends(known, processes.sockets(self._followed.pids))
        if ends:
            others = {one.pid for one in processes.all_processes()} - self._followed.pids
            owners = processes.sockets(others, processes.EVERY_FILE_MAX)
            self._peers = {owners[inode] for inode in ends if inode in owners}

    def peers(self) -> Iterable[int]:
        return self._peers

    def _namespace(self) -> path.Namespace:
        pid = min(self._followed.pids, default=None)
        if self._target.netns is not None:
            return path.Namespace(self._target.netns, pid)
        return path.Namespace(Path(f"/proc/{'self' if pid is None else pid}/ns/net"), pid)

    # -- measure --------------------------------------------------------------------------------------

    def segments(self, planned: Iterable[Segment]) -> Iterator[Segment]:
        block = 0
        for segment in planned:
            if segment.block != block:
                # A command may end at any moment: of one look at its connections nothing follows.
                self._look_at_connections(due=self.is_command and self.setup.raw.connections.looks < 2)
                block = segment.block
            yield segment
            self._learn(segment)
            if self.stop.reason is not None or self.has_ended():
                break
        self._look_at_connections()
        if self._frugal:
            # It may have ended after the last segment had.
            self.last = _timed(self._volume(), self._followed.cpu.used())

    def _learn(self, segment: Segment) -> None:
        """What the program used in the segment that was measured last, and how long its hooks took."""
        begin, end = self._at_begin, self._reading
        if "ledger" in segment.phase:
            self._counts.add(_used_by(end) - _used_by(begin))
        forget(self.setup.raw.segments, self.setup.raw.sums)
        measured_s = (end["t_ns"] - begin["t_ns"]) / 1e9
        self._bound.add(segment.phase, measured_s, time.monotonic() - self._began_s)
        if (late := self._bound.over()) is not None:
            self.stop.because(late)

    def mark(self, closed: Message | None = None) -> Mark:
        if closed is not None:
            return {"target": closed["volume"]}
        self._began_s = time.monotonic()
        self._reading = self._volume()
        if self._followed.find(self._reading):
            self._reading = self._volume()
        return {"target": self._reading}

    def begin(self, segment: Segment, opened: Message | None) -> Mark:
        if opened is not None:
            self._reading = self._told(opened["volume"])
        used = self._use()
        if "ledger" in segment.phase and self.setup.perfs and not self.setup.plan.whole:
            self._counting = used
        self._at_begin = _timed(self._reading, used)
        if self._begun is not None:
            begun, self._begun = self._begun, None
            if self.command is not None:
                self._release(self.command)
            begun(bool(self._followed.pids))
        return {"target": self._at_begin}

    def _release(self, command: Command) -> None:
        """The command begins when the first segment has: however short it is, all of it is seen."""
        if self.stop.reason is not None:
            raise KeyboardInterrupt
        command.release()
        # It has its own name by now.
        self._followed.find(self._volume())

    def end(self, segment: Segment) -> Mark:
        self._let_pass(max(segment.length_s, self._bound.least_s(segment.phase)))
        self._use()
        reading = self._volume()
        self._followed.look_at_new(reading)
        self._reading = _timed(reading, self._followed.cpu.used())
        self._reading["threads"] = self._followed.threads(reading)
        if not self._frugal:
            self.code.look(self._followed.pids)
        return {"target": self._reading}

    def _let_pass(self, length_s: float) -> None:
        counting, self._counting = self._counting, None
        if counting is not None:
            self._wait(min(length_s, COUNTED_S))
            self._end_counts(counting)
            length_s -= COUNTED_S
        self._wait(length_s)
        if counting is not None and self._counts.counters is None:
            self._is_settled()

    def _use(self) -> processes.Use:
        return self._followed.cpu.read(self._followed.pids, fresh=True)

    def _is_settled(self) -> bool:
        """Whether none of its processes has come or gone in any segment in which perf counted.

        Else /proc does not say how much of their time perf had counted by now: it has to count to the end.
        """
        self._settled = self._settled and self._followed.same_processes(self._volume())
        return self._settled

    def _end_counts(self, before: processes.Use) -> None:
        """perf ends when it has counted for long enough."""
        perf = self.setup.perfs["target"]
        enough = (self._use() - before).cpu_ns >= CPU_LEAST_NS
        enough = enough and self._is_settled()
        # perf has ended, and has counted all, when the program has.
        if enough and perf.failure is None and self.stop.reason is None and not self.has_ended():
            self._followed.end_counts()
            perf.disable()
            used = self._use() - before
            self._counts.keep(perf.finish(), used)

    def _wait(self, seconds: float) -> None:
        if self._frugal:
            self.stop.sleep(seconds, self._awaited())
            return
        until = time.monotonic() + seconds
        awaited = self._awaited()
        perf = self.setup.perfs.get("target")
        counts = perf is not None and perf.failure is None and self._counts.counters is None
        every_s = LOOK_SELDOM_S if counts else LOOK_EVERY_S
        while self.stop.reason is None and (left := until - time.monotonic()) > 0:
            ended = self.stop.sleep(min(left, every_s), awaited)
            self._followed.cpu.glance(self._followed.pids, fresh=True, counted=ended)
            if ended:
                if self.has_ended():
                    return
                awaited = self._awaited()
            else:
                # Before it ends: afterwards nobody knows what it had mapped.
                self.code.look(self._followed.pids)

    def _awaited(self) -> int | None:
        """A process whose end may be that of the program."""
        if self.command is not None and self.command.status is None:
            return self.command.pid
        return self._followed.awaited()

    def has_ended(self) -> bool:
        """Whether the program is gone; one that was never there yet (--comm, --cgroup) may still come."""
        if self.command is not None:
            if self.command.poll() is None:
                return False
            # It may have left its work to children, as daemons do.
            self._followed.find(self._volume(), search=True)
            if self._followed.pids and self._target.follow:
                return False
            self.stop.because("the command ended")
            return True
        if self._target.how in ("comm", "cgroup") or self._followed.alive():
            return False
        self._followed.find(self._volume(), search=True)
        if self._followed.pids:
            return False
        self.stop.because("the program ended")
        return True

    def forget_ended(self) -> None:
        self._followed.forget_ended()

    def pids(self) -> Iterable[int]:
        return self._followed.pids

    def ended_ns(self) -> int:
        return 0 if self.command is None else self.command.used_ns

    def _volume(self) -> Totals:
        """What the hooks have counted so far, the CPU time of those that have ended, too."""
        return self._told(self.setup.collector.ask("volume", "volume", ASK_S))

    def _told(self, said: Message) -> Totals:
        reading = cast("Totals", said)
        self._followed.cpu.tell([pid for pid, _ in reading["processes"]], reading["totals"]["ended_ns"])
        return reading

    def _look_at_connections(self, *, due: bool = True) -> None:
        """What TCP says of each connection, our own counts in between. Unless `due`: if it is time for it."""
        if not due and not self._looks.are_cheap():
            return
        raw, collector, namespace = self.setup.raw, self.setup.collector, self._namespace().path
        with self._looks:
            earlier = self._snapshots.take(namespace)
            told = collector.ask("sockets", "sockets", ASK_S)
            later = self._snapshots.take(namespace)
            raw.uncounted |= processes.uncounted(self._followed.pids)
        ours = told["sockets"]
        if earlier is not None and later is not None:
            raw.connections.add(earlier, ours, later, counts_taken=told["counts_taken"])
        if raw.topology is None or not raw.topology["devices"]:
            used = [] if later is None else [later[int(inode)] for inode in ours if int(inode) in later]
            # Those that the hooks noted while the sockets were there; a short program has none any more.
            self._describe(used, collector.ask("peers", "peers", ASK_S)["peers"])

    def _describe(self, used: Sequence[Connection] = (), peers: Sequence[Message] = ()) -> None:
        """The path of the connections that were used so far, or of `peers`; as soon as there is one."""
        namespace = path.namespace_of(self._namespace(), peers)
        if self.setup.raw.topology is None or used or peers:
            self.setup.raw.topology = path.describe(namespace, used, path.devices_of(namespace, peers))

    # -- end ------------------------------------------------------------------------------------------

    def finish(self, *, failed: bool) -> None:
        raw, plan = self.setup.raw, self.setup.plan
        samples = (raw.collector or {}).get("samples", [])
        self.code.name(samples)
        self.code.find_lines(samples)
        if failed:
            self.stop.because("the measurement failed")
        raw.ended = self.stop.reason or raw.ended
        misses = self._followed.perf_misses
        if plan.counters and not self._target.follow:
            misses = "--no-follow: perf follows children and threads, or neither"
        counters = self._counts.whole() if self._counts.counters is not None else None
        if misses is not None:
            counters = all_unsupported(misses, EVENTS)
        if counters is not None:
            raw.counters["target"] = {name: one.as_record() for name, one in counters.items()}
        self.stop.measured = True
        if self.command is not None:
            raw.status = self.command.poll()


def _used_by(reading: Totals) -> processes.Use:
    return processes.Use(
        reading["process_cpu_ns"], reading["voluntary_switches"], reading["involuntary_switches"]
    )


def _timed(reading: Totals, used: processes.Use) -> Totals:
    return {
        **reading,
        "process_cpu_ns": used.cpu_ns,
        "voluntary_switches": used.voluntary,
        "involuntary_switches": used.involuntary,
    }
