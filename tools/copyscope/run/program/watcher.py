"""One run beside a program that copyscope did not write: segments are windows in time, nothing is paused.

The counters of the instruments `watch` and `volume` stay attached from the first to the last moment, unless
the program makes too many calls for that (spared.py); the others come and go. Around each change the counters
are read twice, so that it is known how much moved while hooks were attached or detached.
"""

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from copyscope.errors import RunError
from copyscope.machine import fingerprint
from copyscope.plan.arms import Segment
from copyscope.record.program.segments import forget
from copyscope.run.child import Child, Message
from copyscope.run.counters import EVENTS, all_unsupported
from copyscope.run.program import pace, path, processes
from copyscope.run.program.command import HeldCommand
from copyscope.run.program.connections import Connection, Snapshots
from copyscope.run.program.followed import Followed
from copyscope.run.program.plan import Seen, WatchPlan
from copyscope.run.program.schedule import CALLS_LEAST_S, Bound, Lengths, rest_of_first
from copyscope.run.program.spared import Spared
from copyscope.run.program.stop import Stop

# Attaching waits for every CPU; on a machine that is emulated, or overloaded, that takes its time.
START_S = ASK_S = 60.0
STOP_S = 10.0
# Of a program that ends, at most so much of its CPU time is missed where perf cannot say it.
LOOK_EVERY_S = 0.05


class Watcher:
    """Holds the collector, perf and the command; perform() is the fixed order.

    The command may outlast the measurement: whoever has reported it waits for that with wait_for_command().
    `begin` is called when the first segment has begun, `tell` after each.
    """

    def __init__(
        self,
        plan: WatchPlan,
        begin: Callable[["Watcher"], None] = lambda _: None,
        tell: Callable[["Watcher"], None] = lambda _: None,
    ) -> None:
        self.plan = plan
        self.seen = Seen()
        self._begin = begin
        self._tell = tell
        self._instruments = ExitStack()
        self._exit = ExitStack()
        self.command: HeldCommand | None = None
        self._begun = False
        self._cpus: frozenset[int] = frozenset()
        self._stop = Stop()
        self._snapshots = Snapshots()
        self._looks = pace.Seldom()
        self._lengths = Lengths()
        self.collector: Child
        self._followed: Followed
        self._spared: Spared

    def perform(self) -> Seen:
        """Run to the end. Raises only when nothing at all could be measured."""
        began = time.monotonic()
        with self._instruments:
            self._set_up()
            try:
                self._run_segments()
                self._look_at_connections()
            except RunError as error:
                # Nobody is asked again who may have gone.
                self.seen.errors.append(str(error))
                self._stop.because("the collector failed")
                if not self.seen.segments:
                    raise
            self.seen.ended = self._stop.reason or self.seen.ended
            self._collect_reports()
        self._stop.measured = True
        if self.command is not None:
            self.seen.status = self.command.poll()
        self.seen.wall_s = time.monotonic() - began
        return self.seen

    def is_watching(self) -> bool:
        """Whether there is anybody yet: one that is looked for by name may still come."""
        return bool(self._followed.pids)

    def wait_for_command(self) -> int | None:
        """Its exit status; None without one, or of one that never began. Signals are still passed on."""
        return None if self.command is None else self.command.wait(self._stop.sleep)

    def end(self, reason: str) -> None:
        """Let the measurement end here, in order."""
        self._stop.because(reason)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit.__exit__(kind, value, trace)

    # -- set up ---------------------------------------------------------------------------------------

    def _set_up(self) -> None:
        plan, target = self.plan, self.plan.target
        steal_before = fingerprint.cpu_times()
        self.collector = Child("collector", plan.collector())
        self._instruments.callback(self.collector.end)
        self._instruments.callback(self._snapshots.close)
        if target.command:
            self.command = self._exit.enter_context(HeldCommand(target.command, plan.output))
            target.started.append(self.command.pid)
        listening = self._instruments if self.command is None else self._exit
        listening.callback(self._stop.listen(self.command, lambda: target.find_processes(set())))
        hooks = self.collector.expect("ready", START_S)["hooks"]
        self.plan, self.seen.tier = self.plan.on_this_kernel(hooks)
        plan = self.plan
        self.collector.ask("symbols", "symbols", START_S)
        self._followed = Followed(plan, self.seen, self.collector, self._instruments)
        self.seen.before = self._unwatched()
        self.collector.ask("open watch,volume", "opened", ASK_S)
        self._spared = Spared(
            plan, self.seen, self.collector, self._followed, self._look, snapshots=self._snapshots
        )
        self._followed.find(self._volume())
        self._followed.cpu.read(self._followed.pids, fresh=False)
        if any("sampler" in probes for probes in plan.probes.values()):
            # Children inherit the timers that are there when they are made: so they must be, from the start.
            self.collector.ask("open sampler", "opened", ASK_S)
            self.collector.ask("close", "closed", ASK_S)
        self.seen.machine = fingerprint.describe(self._namespace())
        processes.put_memlock(self.seen.machine, self._followed.pids)
        self._instruments.callback(self._record_steal, steal_before)
        self._describe()
        self._look_at_connections()

    def _unwatched(self) -> list[pace.Reading]:
        """How fast the program goes with nothing attached; a command of ours has no such time."""
        if self.plan.target.command or not self.plan.baseline or not self._followed.alive():
            return []
        return pace.read(self._look, self._stop.sleep)

    def _namespace(self) -> path.Namespace:
        pid = min(self._followed.pids, default=None)
        if self.plan.target.netns is not None:
            return path.Namespace(self.plan.target.netns, pid)
        return path.Namespace(Path(f"/proc/{'self' if pid is None else pid}/ns/net"), pid)

    def _record_steal(self, before: Any) -> None:
        if self.seen.machine is not None:
            self.seen.machine["steal_percent"] = fingerprint.steal_percent(before, fingerprint.cpu_times())

    # -- measure --------------------------------------------------------------------------------------

    def _run_segments(self) -> None:
        self.seen.loads.append(self.read_load())
        try:
            self._run_blocks()
        finally:
            self.seen.loads.append(self.read_load())
            before, after = self.seen.loads
            self.seen.own_cpu_ns = after["own_ns"] - before["own_ns"]

    def read_load(self) -> dict[str, Any]:
        """What the CPUs that the program may use have done so far, and copyscope."""
        self._cpus = self._cpus or fingerprint.usable_cpus(self._followed.pids)
        return fingerprint.read_load(self._own_cpu_ns(), self._cpus)

    def _own_cpu_ns(self) -> int:
        pids = [child.pid for child in (self.collector, self._followed.perf) if child and child.pid]
        return pace.own_cpu_ns(pids, ended=self.command is None)

    def _run_blocks(self) -> None:
        block, bound = 0, Bound(self.plan.duration_s, self.plan.probes)
        for segment in self.plan.segments():
            if segment.block != block:
                self._look_at_connections(due=False)
                block = segment.block
            if self._spared.skips(segment.arm):
                self._lengths.skip(segment)
                continue
            began_s = time.monotonic()
            measured_s = self._run_segment(segment, bound.least_s(segment.arm))
            bound.add(segment.arm, measured_s, time.monotonic() - began_s)
            self._tell(self)
            if (late := bound.over()) is not None:
                self._stop.because(late)
            if self._stop.reason is not None or self._has_ended():
                return

    def _run_segment(self, segment: Segment, least_s: float) -> float:
        """How long it was in the end."""
        spared = self._spared
        probes = spared.probes(segment.arm)
        counting = self._followed.perf if "ledger" in segment.arm else None
        before = spared.read_before()
        if self._followed.find(before):
            before = spared.read()
        if probes:
            opened = self.collector.ask(f"open {','.join(probes)}", "opened", ASK_S)
            # Function hooks count from one moment on, not while one after the other is attached.
            before = opened["volume"] if probes == ("functions",) else before
        if counting is not None:
            counting.enable()
        begin = (
            spared.read_between(since=False) if "volume" in probes else spared.read() if probes else before
        )
        began = self._followed.cpu.read(self._followed.pids, fresh=True)
        if not self._begun:
            self._begun = True
            if self.command is not None:
                self._release(self.command)
            self._begin(self)
        length_s = max(self._lengths.of(segment), least_s)
        if not self.seen.segments:
            self._wait(min(length_s, CALLS_LEAST_S))
            calls = pace.calls(begin, self._volume())
            length_s = rest_of_first(length_s, calls, only=self.plan.whole)
        self._wait(length_s)
        ended = self._followed.cpu.read(self._followed.pids, fresh=True)
        end = after = spared.read_between(since=True) if "volume" in probes else spared.read()
        # perf ends by itself when the last process has: its counts are whole then.
        if counting is not None and not self._has_ended():
            counting.disable()
        self._lengths.add(pace.calls(begin, end), (end["t_ns"] - begin["t_ns"]) / 1e9)
        if probes:
            closed = self.collector.ask("close", "closed", ASK_S)
            after = closed["volume"] if probes == ("functions",) else spared.read()
        spared.consider(begin, end)
        self.seen.segments.append(
            {
                "index": segment.index,
                "block": segment.block,
                "arm": segment.arm,
                "volumes": (before, begin, end, after),
                "clocks": (began, ended),
                "threads": processes.count_threads(self._followed.pids),
                "processes": len(end["processes"]),
            }
        )
        forget(self.seen.segments, self.seen.sums)
        return float(end["t_ns"] - begin["t_ns"]) / 1e9

    def _release(self, command: HeldCommand) -> None:
        """The command begins when the first segment has: however short it is, all of it is seen."""
        if self._stop.reason is not None:
            raise KeyboardInterrupt
        command.release()
        # It has its own name by now.
        self._followed.find(self._volume())

    def _wait(self, seconds: float) -> None:
        until = time.monotonic() + seconds
        awaited = self._awaited()
        while self._stop.reason is None and (left := until - time.monotonic()) > 0:
            ended = self._stop.sleep(min(left, LOOK_EVERY_S), awaited)
            self._followed.cpu.glance(self._followed.pids, fresh=True, switches=ended)
            if ended:
                if self._has_ended():
                    return
                awaited = self._awaited()

    def _awaited(self) -> int | None:
        """A process whose end may be that of the program."""
        if self.command is not None and self.command.status is None:
            return self.command.pid
        return self._followed.awaited()

    def _has_ended(self) -> bool:
        """Whether the program is gone; one that was never there yet (--comm, --cgroup) may still come."""
        if self.command is not None:
            if self.command.poll() is None:
                return False
            # It may have left its work to children, as daemons do.
            self._followed.find(self._volume(), search=True)
            if self._followed.pids and self.plan.target.follow:
                return False
            self._stop.because("the command ended")
            return True
        if self.plan.target.how in ("comm", "cgroup") or self._followed.alive():
            return False
        self._followed.find(self._volume(), search=True)
        if self._followed.pids:
            return False
        self._stop.because("the program ended")
        return True

    def _volume(self) -> Message:
        return self._spared.ask()

    def _look(self) -> dict[int, Connection] | None:
        return self._snapshots.take(self._namespace().path)

    def _look_at_connections(self, *, due: bool = True) -> None:
        """What TCP says of each connection, our own counts in between. Unless `due`: if it is time for it."""
        if not due and not self._looks.are_cheap():
            return
        with self._looks:
            earlier = self._spared.look()
            told = self.collector.ask("sockets", "sockets", ASK_S)
            ours, later = self._spared.sockets() or told["sockets"], self._spared.look()
        if earlier is not None and later is not None:
            self.seen.connections.add(earlier, ours, later, counts_taken=told["counts_taken"])
        used = [] if later is None else [later[int(inode)] for inode in ours if int(inode) in later]
        self._describe(used, told["peers"])

    def _describe(self, used: Sequence[Connection] = (), peers: Sequence[Message] = ()) -> None:
        """The path of the connections that were used so far; once, as soon as there is one to look at.

        `peers`: those that the hooks noted while the sockets were there; a short program has none any more.
        """
        topology = self.seen.topology
        if topology is not None and topology["devices"]:
            return
        namespace = path.namespace_of(self._namespace(), peers)
        if topology is None or used or peers:
            self.seen.topology = path.describe(namespace, used, path.devices_of(namespace, peers))

    # -- end ------------------------------------------------------------------------------------------

    def _collect_reports(self) -> None:
        if self.plan.counters and not self.plan.target.follow:
            self._count_nothing("--no-follow: perf follows children and threads, or neither")
        if self._followed.perf is not None:
            counts = self._followed.perf.finish()
            self.seen.counters = {name: count.as_record() for name, count in counts.items()}
            if self._followed.perf_misses is not None:
                self._count_nothing(self._followed.perf_misses)
        try:
            self.seen.collector = self.collector.ask("report", "report", STOP_S)
        except RunError as error:
            self.seen.errors += [str(error)] * (str(error) not in self.seen.errors)
        if self.seen.before:
            # With it goes all that was attached.
            self.collector.end()
            self.seen.after = self._unwatched()

    def _count_nothing(self, reason: str) -> None:
        counts = all_unsupported(reason, EVENTS)
        self.seen.counters = {name: count.as_record() for name, count in counts.items()}
