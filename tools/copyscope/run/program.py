"""A program that copyscope did not write: segments are stretches of time, nothing is paused or altered.

The hooks that count its bytes (`watch` and `volume`) stay attached from the first to the last moment; the
others come and go. A mark is a reading of these counters. One stands on either side of each change, so that
it is known how much moved meanwhile.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from copyscope.machine import fingerprint
from copyscope.plan.run_plan import RunPlan
from copyscope.plan.schedule import Bound, Segment
from copyscope.record.connections import Connections
from copyscope.record.moved import Sums, forget
from copyscope.run import path, processes
from copyscope.run.child import Message, Program
from copyscope.run.command import Command, Output, Stop
from copyscope.run.connections import Connection, Snapshots
from copyscope.run.counters import COUNTED_S, CPU_LEAST_NS, EVENTS, CountedPart, all_unsupported
from copyscope.run.perf_stat import PerfStat
from copyscope.run.session import Mark, Raw, Subject
from copyscope.run.target import Target
from copyscope.run.user_code import UserCode

# Attaching waits for every CPU; on a machine that is emulated, or overloaded, that takes its time.
ASK_S = 60.0
# Of a program that ends, at most so much of its CPU time is missed where perf does not count it to its end.
# More often would cost more: each look interrupts the program, or whoever it talks to, and both wait. Twenty
# a second took 3 % of the requests of an nginx that shares two CPUs with its client.
LOOK_EVERY_S = 0.1
LOOK_SELDOM_S = 1.0
# Of one CPU, what looks at all connections take at most.
LOOKS_SHARE = 0.005


@dataclass
class RawProgram(Raw):
    """Of older segments only the rows are left, and in `sums` what moved in them (forget())."""

    sums: Sums = field(default_factory=dict)
    ended: str = "the time was over"
    pids: dict[int, str] = field(default_factory=dict)
    uncounted: set[str] = field(default_factory=set)
    connections: Connections = field(default_factory=Connections)
    status: int | None = None


class WatchedProgram(Subject):
    """Its command may outlast the measurement: wait_for_command().

    `begun` is called when the first segment has begun, with whether there is anybody yet.
    """

    raw: RawProgram

    def __init__(
        self,
        target: Target,
        duration_s: float | None,
        *,
        output: Output = "own",
        begun: Callable[[bool], None] = lambda _: None,
    ) -> None:
        super().__init__(RawProgram())
        self.command: Command | None = None
        self._target = target
        self._duration_s = duration_s
        # Else a command may be among them.
        self.owns_children = not target.command
        self._output = output
        self._begun: Callable[[bool], None] | None = begun
        self._exit = ExitStack()
        self._stop = Stop()
        self._snapshots = Snapshots()
        self._looks = processes.Seldom(LOOKS_SHARE)
        self.code = UserCode()
        self._counts = CountedPart()
        # What had been used when perf began to count in this segment.
        self._counting: processes.Use | None = None
        self._settled = True
        self._bound: Bound
        self._began: Message
        self._followed: Followed

    @property
    def is_command(self) -> bool:
        """Whether the program is started to be watched."""
        return bool(self._target.command)

    def wait_for_command(self) -> int | None:
        """Its exit status; None without one, or of one that never began. Signals are still passed on."""
        return None if self.command is None else self.command.wait(self._stop.sleep)

    def stop(self, reason: str) -> None:
        """Let the measurement end here, in order."""
        self._stop.because(reason)

    def signals_aside(self) -> AbstractContextManager[None]:
        """Something else runs meanwhile, which a signal is to end."""
        return self._stop.aside()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit.__exit__(kind, value, trace)

    # -- set up ---------------------------------------------------------------------------------------

    def arguments(self) -> list[str]:
        return self._target.arguments()

    def prepare(self) -> None:
        target, until = self._target, self.session.until
        until.callback(self._snapshots.close)
        if target.command:
            self.command = self._exit.enter_context(Command(target.command, self._output))
            target.started.append(self.command.pid)
        # Beyond the session: a signal while its record is made loses nothing.
        self._exit.callback(self._stop.listen(self.command, lambda: target.find_processes(set())))
        session = self.session
        session.collector.send("symbols", "symbols")
        perfs = self.perfs if session.plan.counters and target.follow else None
        self._followed = Followed(target, self.raw.pids, session.collector, until, perfs)
        self.raw.machine = fingerprint.describe(self._namespace())

    def start(self, plan: RunPlan, collector: Program) -> None:
        self._bound = Bound(self._duration_s, plan.probes)
        collector.expect("symbols", ASK_S)
        self.session.steps.prepare("attaching")
        collector.ask(f"open {','.join(plan.always)}", "opened", ASK_S)
        # Twice: one that the collector is told of only now may have made children before.
        self._followed.find(self._volume())
        self._followed.find(self._volume())
        self._followed.cpu.read(self._followed.pids, fresh=False)
        assert self.raw.machine is not None  # prepare() has described it
        processes.put_memlock(self.raw.machine, self._followed.pids)
        self._describe()
        self._look_at_connections()

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
                self._look_at_connections(due=self.is_command and self.raw.connections.looks < 2)
                block = segment.block
            self.session.hook(segment.phase)
            began_s = time.monotonic()
            yield segment
            self._learn(segment, began_s)
            if self._stop.reason is not None or self.has_ended():
                break
        self._look_at_connections()

    def _learn(self, segment: Segment, began_s: float) -> None:
        """What the program used in the segment that was measured last, and how long its hooks took."""
        _, begin, end, _ = (mark["target"] for mark in self.raw.segments[-1]["marks"])
        measured_s = (end["t_ns"] - begin["t_ns"]) / 1e9
        if "ledger" in segment.phase:
            keys = ("process_cpu_ns", "voluntary_switches", "involuntary_switches")
            self._counts.add(processes.Use(*(end[key] - begin[key] for key in keys)))
        forget(self.raw.segments, self.raw.sums)
        self._bound.add(segment.phase, measured_s, time.monotonic() - began_s)
        if (late := self._bound.over()) is not None:
            self._stop.because(late)

    def probes(self, phase: str) -> tuple[str, ...]:
        return self.session.plan.probes[phase]

    def before(self) -> Mark:
        self._began = self._volume()
        if self._followed.find(self._began):
            self._began = self._volume()
        return {"target": self._began}

    def begin(self, opened: Message) -> Mark:
        if opened:
            self._began = opened["volume"]
            self._tell(self._began)
        mark = self._timed(self._began, self._use())
        if self._begun is not None:
            begun, self._begun = self._begun, None
            if self.command is not None:
                self._release(self.command)
            begun(bool(self._followed.pids))
        return mark

    def _timed(self, reading: Message, used: processes.Use) -> Mark:
        switches = {"voluntary_switches": used.voluntary, "involuntary_switches": used.involuntary}
        return {"target": {**reading, "process_cpu_ns": used.cpu_ns, **switches}}

    def _release(self, command: Command) -> None:
        """The command begins when the first segment has: however short it is, all of it is seen."""
        if self._stop.reason is not None:
            raise KeyboardInterrupt
        command.release()
        # It has its own name by now.
        self._followed.find(self._volume())

    def run(self, segment: Segment) -> None:
        length_s = max(segment.length_s, self._bound.least_s(segment.phase))
        counting, self._counting = self._counting, None
        if counting is not None:
            self._wait(min(length_s, COUNTED_S))
            self._end_counts(counting)
            length_s -= COUNTED_S
        self._wait(length_s)
        if counting is not None and self._counts.counters is None:
            self._is_settled()

    def counting(self) -> None:
        if not self.session.plan.whole:
            self._counting = self._use()

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
        perf = self.perfs["target"]
        enough = (self._use() - before).cpu_ns >= CPU_LEAST_NS
        enough = enough and self._is_settled()
        # perf has ended, and has counted all, when the program has.
        if enough and perf.failure is None and self._stop.reason is None and not self.has_ended():
            self._followed.end_counts()
            perf.disable()
            used = self._use() - before
            self._counts.keep(self.session.end_perf(perf), used)

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        awaited = self._awaited()
        perf = self.perfs.get("target")
        counts = perf is not None and perf.failure is None and self._counts.counters is None
        every_s = LOOK_SELDOM_S if counts else LOOK_EVERY_S
        while self._stop.reason is None and (left := until - time.monotonic()) > 0:
            ended = self._stop.sleep(min(left, every_s), awaited)
            self._followed.cpu.glance(self._followed.pids, fresh=True, counted=ended)
            if ended:
                if self.has_ended():
                    return
                awaited = self._awaited()
            else:
                # Before it ends: afterwards nobody knows what it had mapped.
                self.code.look(self._followed.pids)

    def end(self) -> Mark:
        self._use()
        reading = self._volume()
        self._followed.look_at_new(reading)
        mark = self._timed(reading, self._followed.cpu.used())
        threads = self._followed.threads(reading)
        self.code.look(self._followed.pids)
        return {"target": {**mark["target"], "threads": threads}}

    def after(self, closed: Message) -> Mark:
        return {"target": closed["volume"]}

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
            self._stop.because("the command ended")
            return True
        if self._target.how in ("comm", "cgroup") or self._followed.alive():
            return False
        self._followed.find(self._volume(), search=True)
        if self._followed.pids:
            return False
        self._stop.because("the program ended")
        return True

    def pids(self) -> Iterable[int]:
        return self._followed.pids

    def _volume(self) -> Message:
        """What the hooks have counted so far, the CPU time of those that have ended, too."""
        said = self.session.collector.ask("volume", "volume", ASK_S)
        self._tell(said)
        return said

    def _tell(self, said: Message) -> None:
        self._followed.cpu.tell([pid for pid, _ in said["processes"]], said["totals"]["ended_ns"])

    def _look(self) -> dict[int, Connection] | None:
        return self._snapshots.take(self._namespace().path)

    def _look_at_connections(self, *, due: bool = True) -> None:
        """What TCP says of each connection, our own counts in between. Unless `due`: if it is time for it."""
        if not due and not self._looks.are_cheap():
            return
        with self._looks:
            earlier = self._look()
            told = self.session.collector.ask("sockets", "sockets", ASK_S)
            later = self._look()
            self.raw.uncounted |= processes.uncounted(self._followed.pids)
        ours = told["sockets"]
        if earlier is not None and later is not None:
            self.raw.connections.add(earlier, ours, later, counts_taken=told["counts_taken"])
        topology = self.raw.topology
        if topology is None or not topology["devices"]:
            used = [] if later is None else [later[int(inode)] for inode in ours if int(inode) in later]
            self._describe(used, self._peers())

    def _peers(self) -> list[Message]:
        """Those that the hooks noted while the sockets were there; a short program has none any more."""
        peers: list[Message] = self.session.collector.ask("peers", "peers", ASK_S)["peers"]
        return peers

    def _describe(self, used: Sequence[Connection] = (), peers: Sequence[Message] = ()) -> None:
        """The path of the connections that were used so far, or of `peers`; as soon as there is one."""
        namespace = path.namespace_of(self._namespace(), peers)
        if self.raw.topology is None or used or peers:
            self.raw.topology = path.describe(namespace, used, path.devices_of(namespace, peers))

    # -- end ------------------------------------------------------------------------------------------

    def finish(self) -> None:
        raw, plan = self.raw, self.session.plan
        self.code.name((raw.collector or {}).get("samples", []))
        if self.session.failed:
            self._stop.because("the measurement failed")
        raw.ended = self._stop.reason or raw.ended
        misses = self._followed.perf_misses
        if plan.counters and not self._target.follow:
            misses = "--no-follow: perf follows children and threads, or neither"
        if misses is not None:
            counts = all_unsupported(misses, EVENTS)
            raw.counters["target"] = {name: one.as_record() for name, one in counts.items()}
        elif self._counts.counters is not None:
            raw.counters["target"] = {name: one.as_record() for name, one in self._counts.whole().items()}
        self._stop.measured = True
        if self.command is not None:
            raw.status = self.command.poll()


ASK_S = 60.0
PERF_TRIES = 5
# A process may take the name that is looked for at any moment (prctl(2)).
LOOK_FOR_NAMES_EVERY_S = 0.5


class Followed:
    """The processes of the target; `pids` is what find() saw last."""

    def __init__(
        self,
        target: Target,
        names: dict[int, str],
        collector: Program,
        until: ExitStack,
        perfs: dict[str, PerfStat] | None,
    ) -> None:
        """`names` gets everybody's; `perfs` the one that counts their events, None: they are not counted."""
        self.pids = target.find_processes(set())
        self.cpu = processes.CpuTimes()
        self.perf_misses: str | None = None
        self._target = target
        self._perfs = perfs
        self._names = names
        self._collector = collector
        self._until = until
        self._told: set[int] = set()
        self._looked_s = 0.0
        self._threads = 0
        self._settled: Any = None

    def find(self, volume: Message, *, search: bool = False) -> bool:
        """Tell the collector of processes that it cannot have seen coming, and note everybody's name.

        /proc is searched only when a process may have come or gone: that takes CPU time from whoever is
        watched. Returns whether it was.
        """
        search = search or self._may_have_changed(volume)
        told = len(self._told)
        followed = {pid: forked for pid, forked in volume["processes"]}
        if search:
            self.pids = self._target.find_processes(self.pids, followed)
            self._looked_s = time.monotonic()
        for pid in sorted(self.pids):
            process = processes.read_process(pid)
            if process is None:
                continue
            if search and self._target.is_new(process):
                self._told.discard(pid)
                self.cpu.forget(pid)
            self._names[pid] = process.comm
            # Of a child BPF has seen the fork, and it has inherited what perf counts; of a name the exec.
            if pid not in self._told and not followed.get(pid, False):
                self._tell(process, fresh=self._target.how == "comm" and pid in followed)
        # One that was told of only now may have made children before.
        self._settled = _population(volume) if told == len(self._told) else None
        if self._perfs == {} and self.pids:
            self._perfs["target"] = self._start_perf()
        return search

    def alive(self) -> bool:
        return any(processes.is_alive(pid) for pid in self.pids)

    def awaited(self) -> int | None:
        """A process whose end may be that of the program; None when others may still come."""
        if self._target.how in ("comm", "cgroup"):
            return None
        # With none left alive, the end of any of them is the answer: it has come.
        return next((pid for pid in self.pids if processes.is_alive(pid)), min(self.pids, default=None))

    def _may_have_changed(self, volume: Message) -> bool:
        how = self._target.how
        old = how == "comm" and time.monotonic() - self._looked_s > LOOK_FOR_NAMES_EVERY_S
        return how == "cgroup" or old or _population(volume) != self._settled

    def look_at_new(self, volume: Message) -> None:
        """The clocks of processes that have begun since, as the hooks on fork and exec saw."""
        by_exec = self._target.how == "comm"
        new = self.cpu.new_among(pid for pid, by_fork in volume["processes"] if by_fork or by_exec)
        self.cpu.glance(new, fresh=True, counted=True)

    def threads(self, volume: Message) -> int:
        """Of all its processes, also those nobody has looked for yet; the most at the ends of a segment.

        Each may be inside one call there.
        """
        known = self.pids | {pid for pid, _ in volume["processes"]}
        before, self._threads = self._threads, sum(len(processes.threads(pid)) for pid in known)
        return max(before, self._threads)

    def same_processes(self, volume: Message) -> bool:
        """Whether none has come or gone since they were looked for; their threads may."""
        return self._settled is not None and _population(volume)[1:] == self._settled[1:]

    def end_counts(self) -> None:
        """perf counts no more: processes that join later are missed by nobody."""
        if self._perfs is not None:
            self._perfs.clear()
        self._perfs = None

    def _start_perf(self) -> PerfStat:
        """perf gives up when a thread that it has found ends before it is there: then once more."""
        for _ in range(PERF_TRIES):
            perf = PerfStat(*sorted(self.pids))
            perf.start()
            perf.wait_ready()
            if perf.failure is None or "had ended" not in perf.failure:
                break
        return self._until.enter_context(perf)

    def _tell(self, process: processes.Process, *, fresh: bool) -> None:
        self._told.add(process.pid)
        self._collector.ask(f"target target {process.pid}", "target", ASK_S)
        self.cpu.read({process.pid}, fresh=fresh)
        if self._perfs:
            self.perf_misses = f"perf was there before {process.comm}[{process.pid}] belonged to the target"


def _population(volume: Message) -> tuple[Any, ...]:
    """What changes whenever a thread or process of the target is made or ends: the hooks see both."""
    totals = volume["totals"]
    return totals["births"], totals["exits"], sorted(volume["processes"])
