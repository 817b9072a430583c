# SPDX-License-Identifier: GPL-2.0-only
"""Measure a watched program without ever pausing it: a segment is just a period of time.

The hooks that count its bytes (`watch` and `volume`) are attached throughout; other hooks are
attached for segments. A mark is a reading of the byte counters. Marks are made before and after hooks are
attached or detached, so that the bytes that moved meanwhile are known.
"""

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self, cast

from msgspec import convert

from copyscope.machine import fingerprint
from copyscope.plan.schedule import Bound, PlannedSegment
from copyscope.record.measured import Machine
from copyscope.record.messages import Mark, PeerMessage, SwitchMessage, TotalsMessage
from copyscope.record.moved import forget
from copyscope.run import path, processes
from copyscope.run.command import Command, Output, Stop
from copyscope.run.connections import Snapshots, TcpConnection, find_peer_inodes
from copyscope.run.counters import (
    CPU_TIME_MIN_NS,
    EVENTS,
    PERF_RUN_S,
    CounterRow,
    all_unsupported,
    scale_to_ledger,
)
from copyscope.run.session import Setup, Subject
from copyscope.run.target import ATTACH_TIMEOUT_S, Followed, WatchTarget
from copyscope.run.user_code import UserCodeFinder
from copyscope.run.wait_sampler import WaitSampler

# Interval in seconds between readings of the CPU time of a program that perf does not count to its end, and
# most CPU time that is missed when a process exits. A shorter interval costs too much, because each reading
# interrupts the program: 20 readings a second took 3 % of the requests of an nginx that shares two CPUs with
# its client.
READ_INTERVAL_S = 0.1
# Number of samples that may be taken before the collector empties their map: a quarter of its size
# (STACKS_MAX in bpf/abi.h). Otherwise a long segment fills the map, and further samples are lost.
SAMPLES_IN_MAP = 4096
# Interval in seconds between readings of the CPU time while perf counts.
READ_INTERVAL_WITH_PERF_S = 1.0
# Share of one CPU that reading all connections may use.
CONNECTIONS_CPU_SHARE = 0.005
# Share of one CPU for reading connections, and for searching processes by name, in an endless watch.
ENDLESS_CPU_SHARE = 0.001


class WatchedProgram(Subject):
    """A watched program as the subject of a session.

    A program that copyscope started may outlast the measurement: wait_for_command() waits for its exit.
    """

    def __init__(
        self,
        target: WatchTarget,
        duration_s: float | None,
        *,
        output: Output = "own",
        begun: Callable[[bool], None] = lambda _: None,
        endless: bool = False,
    ) -> None:
        """Prepare to watch the processes of `target`.

        `duration_s`: duration, or None to measure until the program exits. `output`: where a command's output
        goes. `begun` is called when the first segment has begun: True if the program has a process by then.
        `endless`: watch without end; CPU times are read only at the end of each segment, and no code is read.
        """
        self.command: Command | None = None
        self._target = target
        self._duration_s = duration_s
        self._output = output
        self._begun: Callable[[bool], None] | None = begun
        # The reason why the measurement ends, once there is one.
        self.stop = Stop()
        self._exit = ExitStack()
        self._snapshots = Snapshots()
        self._endless = endless
        self._connections_budget = processes.CpuBudget(
            ENDLESS_CPU_SHARE if endless else CONNECTIONS_CPU_SHARE
        )
        self.code = UserCodeFinder()
        # Counts of perf after its end; use of the CPUs while perf counted, and in all ledger segments.
        self._perf_counts: dict[str, CounterRow] | None = None
        self._counted_use = self._ledger_use = processes.Use()
        # Use of the CPUs when perf began to count in this segment; None if perf does not count in it.
        self._use_before_counting: processes.Use | None = None
        # False once a process started or exited while perf counted.
        self._unchanged = True
        # Pids of local processes that the program is connected to.
        self._peers: set[int] = set()
        self._bound: Bound
        # Time before attaching for the segment, last reading, and reading at the start of the segment.
        self._switch_began_s = 0.0
        self._reading: TotalsMessage
        self._at_begin: TotalsMessage
        # Reading after the last segment of an endless watch.
        self.last: TotalsMessage | None = None
        self._followed: Followed
        # None in an endless watch.
        self._waits: WaitSampler | None = None

    @property
    def is_command(self) -> bool:
        """True if copyscope starts the program itself."""
        return bool(self._target.command)

    def wait_for_command(self) -> int | None:
        """Wait for the command; return its exit status, or None if no command was started.

        Meanwhile, signals are still passed on to the command.
        """
        return None if self.command is None else self.command.wait(self.stop.sleep)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._exit.__exit__(kind, value, trace)

    # -- set up ---------------------------------------------------------------------------------------

    def prepare(self, setup: Setup) -> None:
        """Start the collector, create the process for a command, and find the target's processes."""
        self.setup, target = setup, self._target
        setup.collector = setup.spawn("collector", setup.plan.collector())
        setup.cleanup.callback(self._snapshots.close)
        if target.command:
            self.command = self._exit.enter_context(Command(target.command, self._output))
            target.started.append(self.command.pid)
        # Registered outside the session, so that a signal loses nothing while the record is written.
        self._exit.callback(self.stop.listen(self.command, lambda: target.find_processes(set())))
        setup.load_symbols()
        perfs = setup.perfs if setup.plan.counters and target.follow else None
        self._followed = Followed(target, setup.raw.pids, setup.collector, setup.cleanup, perfs)
        if self._endless:
            self._followed.searches = processes.CpuBudget(ENDLESS_CPU_SHARE)
            self._followed.cpu.counts_switches = False
        machine = fingerprint.describe_machine(self._namespace())
        setup.raw.machine = convert(machine, Machine, from_attributes=True)

    def start(self) -> None:
        """Attach the hooks that count throughout, find all processes, and describe the path and peers."""
        plan, collector, followed = self.setup.plan, self.setup.collector, self._followed
        self._bound = Bound(self._duration_s, plan.probes)
        collector.expect("symbols", ATTACH_TIMEOUT_S)
        collector.ask(f"open {','.join(plan.always)}", "opened", ATTACH_TIMEOUT_S)
        # Find processes twice, because a process that is announced only now may already have forked.
        followed.find(self._volume())
        followed.find(self._volume())
        followed.cpu.read(followed.pids, fresh=False)
        assert self.setup.raw.machine is not None  # set by prepare()
        processes.set_memlock_limit(self.setup.raw.machine, followed.pids)
        if not self._endless and not self.is_command:
            self.code.read_mappings(followed.pids)
        self._describe()
        self._read_connections()
        self._find_peers()

    def _find_peers(self) -> None:
        """Find the local processes to which the program is connected when the measurement begins."""
        connections = self._snapshots.take(self._namespace().path) or {}
        peer_inodes = find_peer_inodes(connections, processes.find_sockets(self._followed.pids))
        if peer_inodes:
            others = {process.pid for process in processes.all_processes()} - self._followed.pids
            owners = processes.find_sockets(others, processes.MACHINE_FD_READS_MAX)
            self._peers = {owners[inode] for inode in peer_inodes if inode in owners}

    def peers(self) -> Iterable[int]:
        return self._peers

    def _namespace(self) -> path.TargetNamespace:
        """Return the network namespace of the program."""
        pid = min(self._followed.pids, default=None)
        if self._target.netns is not None:
            return path.TargetNamespace(self._target.netns, pid)
        return path.TargetNamespace(Path(f"/proc/{'self' if pid is None else pid}/ns/net"), pid)

    # -- measure --------------------------------------------------------------------------------------

    def wait_for_traffic(self) -> None:
        """Wait until the program moves its first bytes, but no longer than the measurement's duration.

        For a command, return at once, because it starts only when the first segment begins.
        """
        if self._endless or self.is_command or self._duration_s is None:
            return
        end_s = time.monotonic() + self._duration_s
        calls_before = _count_calls(self._volume())
        while self.stop.reason is None and time.monotonic() < end_s and not self.has_ended():
            reading = self._volume()
            if _count_calls(reading) != calls_before:
                return
            self._followed.find(reading)
            self.stop.sleep(READ_INTERVAL_S, self._process_to_await())

    def segments(self, planned: Iterable[PlannedSegment]) -> Iterator[PlannedSegment]:
        """Yield the planned segments until the program ends, and read its connections between blocks."""
        block = 0
        for segment in planned:
            if segment.block != block:
                # A command may exit at any moment, and one reading of its connections gives no difference.
                self._read_connections(due=self.is_command and self.setup.raw.connections.readings < 2)
                block = segment.block
            yield segment
            self._note_segment(segment)
            if self.stop.reason is not None or self.has_ended():
                break
        self._read_connections()
        if self._endless:
            # The program may have exited after the last segment.
            self.last = _timed(self._volume(), self._followed.cpu.used())

    def _note_segment(self, segment: PlannedSegment) -> None:
        """Note the program's CPU time in the last segment, and how long attaching its hooks took."""
        begin, end = self._at_begin, self._reading
        if "ledger" in segment.phase:
            self._ledger_use += _used_by(end) - _used_by(begin)
        forget(self.setup.raw.segments, self.setup.raw.sums)
        measured_s = (end["t_ns"] - begin["t_ns"]) / 1e9
        self._bound.add(segment.phase, measured_s, time.monotonic() - self._switch_began_s)
        if (late := self._bound.why_over()) is not None:
            self.stop.because(late)

    def mark(self, closed: SwitchMessage | None = None) -> Mark:
        if closed is not None:
            return {"target": closed["volume"]}
        self._switch_began_s = time.monotonic()
        self._reading = self._volume()
        if self._followed.find(self._reading):
            self._reading = self._volume()
        return {"target": self._reading}

    def begin(self, segment: PlannedSegment, opened: SwitchMessage | None) -> Mark:
        """Return the totals at the start of a segment. In the first segment, also start the command."""
        if opened is not None:
            self._reading = self._note_ended(opened["volume"])
        used = self._use()
        if "ledger" in segment.phase and self.setup.perfs and not self.setup.plan.single_segment:
            self._use_before_counting = used
        self._at_begin = _timed(self._reading, used)
        if self._begun is not None:
            begun, self._begun = self._begun, None
            if self.command is not None:
                self._start_command(self.command)
            begun(bool(self._followed.pids))
            self._sample_waits()
        return {"target": self._at_begin}

    def _sample_waits(self) -> None:
        """Start sampling where the threads wait, until the end of the run."""
        if not self._endless:
            self._waits = WaitSampler(lambda: self._followed.pids, lambda: self._namespace().path)
            self.setup.cleanup.callback(self._waits.stop)
            self._waits.start()

    def _start_command(self, command: Command) -> None:
        """Start the command in the first segment, so that even a short command is measured completely."""
        if self.stop.reason is not None:
            raise KeyboardInterrupt
        command.release()
        # The exec(2) is complete by now, so the process has its final name and maps its own code.
        self._followed.find(self._volume())
        self.code.read_mappings(self._followed.pids)

    def end(self, segment: PlannedSegment) -> Mark:
        """Wait until the segment is over, and return the totals at its end."""
        length_s = max(segment.length_s, self._bound.shortest_s(segment.phase))
        self._wait_for_segment(length_s, sampled="sampler" in self.setup.plan.probes_of(segment))
        self._use()
        reading = self._volume()
        self._followed.read_new_processes(reading)
        self._reading = _timed(reading, self._followed.cpu.used())
        if self._endless:
            # No metric needs the number of threads, which takes long to read: each process counts as one.
            self._reading["threads"] = len(self._followed.pids)
        else:
            self._reading["threads"] = self._followed.count_threads(reading)
            self.code.read_mappings(self._followed.pids)
        return {"target": self._reading}

    def _wait_for_segment(self, length_s: float, *, sampled: bool) -> None:
        """Wait until the segment is over. End perf early if it has counted for long enough.

        `sampled`: True if the segment takes samples.
        """
        use_before, self._use_before_counting = self._use_before_counting, None
        if use_before is not None:
            self._wait(min(length_s, PERF_RUN_S), sampled=sampled)
            self._stop_perf_early(use_before)
            length_s -= PERF_RUN_S
        self._wait(length_s, sampled=sampled)
        if use_before is not None and self._perf_counts is None:
            self._check_unchanged()

    def _use(self) -> processes.Use:
        """Read and return the program's CPU time and context switches so far."""
        return self._followed.cpu.read(self._followed.pids, fresh=True)

    def _check_unchanged(self) -> bool:
        """Return True if no process started or exited in any segment in which perf counted.

        Otherwise /proc does not show for how much CPU time perf has counted, so perf must count to the end.
        """
        self._unchanged = self._unchanged and self._followed.has_same_processes(self._volume())
        return self._unchanged

    def _stop_perf_early(self, before: processes.Use) -> None:
        """End perf if it has counted for enough CPU time. `before`: CPU use when perf began to count."""
        perf = self.setup.perfs["target"]
        enough = (self._use() - before).cpu_ns >= CPU_TIME_MIN_NS
        enough = enough and self._check_unchanged()
        # If the program has exited, perf has ended, too, and its counts are complete.
        if enough and perf.failure is None and self.stop.reason is None and not self.has_ended():
            self._followed.stop_counting()
            perf.disable()
            self._counted_use = self._ledger_use + (self._use() - before)
            self._perf_counts = perf.finish()

    def _wait(self, seconds: float, *, sampled: bool = True) -> None:
        """Wait `seconds`, or until the program ends. Meanwhile, read CPU times and mappings.

        `sampled`: True to empty the map of samples before it is full.
        """
        if self._endless:
            self.stop.sleep(seconds, self._process_to_await())
            return
        began_s = time.monotonic()
        end_s, awaited = began_s + seconds, self._process_to_await()
        perf = self.setup.perfs.get("target")
        counts = perf is not None and perf.failure is None and self._perf_counts is None
        every_s = READ_INTERVAL_WITH_PERF_S if counts else READ_INTERVAL_S
        samples_per_s = self.setup.plan.frequency_hz * (os.cpu_count() or 1)
        emptying_s = max(READ_INTERVAL_S, SAMPLES_IN_MAP / samples_per_s) if sampled else math.inf
        read_at_s, empty_at_s = began_s + every_s, began_s + emptying_s
        while self.stop.reason is None and (now_s := time.monotonic()) < end_s:
            wake_at_s = min(end_s, read_at_s, empty_at_s)
            ended = self.stop.sleep(max(0.0, wake_at_s - now_s), awaited)
            if ended or time.monotonic() >= min(end_s, read_at_s):
                self._followed.cpu.update(self._followed.pids, fresh=True, counted=ended)
                read_at_s = time.monotonic() + every_s
                if not ended:
                    # Read /proc/PID/maps before the process exits: it is gone afterwards.
                    self.code.read_mappings(self._followed.pids)
            if ended:
                if self.has_ended():
                    return
                awaited = self._process_to_await()
            if time.monotonic() >= empty_at_s:
                # The answer is unused: the next reading has the CPU times of processes that exit now.
                self.setup.collector.ask("volume", "volume", ATTACH_TIMEOUT_S)
                empty_at_s = time.monotonic() + emptying_s

    def _process_to_await(self) -> int | None:
        """Return the pid of a process whose exit may end the program, or None if there is none."""
        if self.command is not None and self.command.status is None:
            return self.command.pid
        return self._followed.process_to_await()

    def has_ended(self) -> bool:
        """Return True if the program is gone. False if others may start later."""
        if self.command is not None:
            if self.command.poll() is None:
                return False
            # The command may have left its work to children, as daemons do.
            self._followed.find(self._volume(), search=True)
            if self._followed.pids and self._target.follow:
                return False
            self.stop.because("the command ended")
            return True
        if self._target.gains_processes or self._followed.is_alive():
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

    def cpus(self) -> frozenset[int] | None:
        """Return the CPUs that the threads may use; None before a command starts, as it may change them."""
        if self.command is not None and self._begun is not None:
            return None
        folders = (folder for pid in self._followed.pids for folder in processes.threads(pid))
        return fingerprint.usable_cpus(int(folder.rpartition("/")[2]) for folder in folders)

    def ended_ns(self) -> int:
        return 0 if self.command is None else self.command.used_ns

    def _volume(self) -> TotalsMessage:
        """Return the counts of the hooks so far, and note the CPU time of exited processes."""
        answer = self.setup.collector.ask("volume", "volume", ATTACH_TIMEOUT_S)
        return self._note_ended(cast("TotalsMessage", answer))

    def _note_ended(self, reading: TotalsMessage) -> TotalsMessage:
        """Note the CPU time of exited processes in a reading, and return the reading."""
        self._followed.cpu.set_reported(
            [pid for pid, _ in reading["processes"]], reading["totals"]["ended_ns"]
        )
        return reading

    def _read_connections(self, *, due: bool = True) -> None:
        """Read TCP's counts for each connection before and after those of the hooks.

        Unless `due`, read them only if the CPU time budget allows it. Do not read those of all programs: they
        may be many, and are in several network namespaces.
        """
        if not due and not self._connections_budget.allows_use():
            return
        if self._target.how == "all":
            return
        raw, collector, namespace = self.setup.raw, self.setup.collector, self._namespace().path
        with self._connections_budget:
            earlier = self._snapshots.take(namespace)
            sockets = collector.ask("sockets", "sockets", ATTACH_TIMEOUT_S)
            later = self._snapshots.take(namespace)
            raw.uncounted |= processes.find_uncounted_sockets(self._followed.pids)
        ours = sockets["sockets"]
        if earlier is not None and later is not None:
            raw.connections.add(earlier, ours, later, counts_taken=sockets["counts_taken"])
        if raw.topology is None or not raw.topology.devices:
            used = [] if later is None else [later[int(inode)] for inode in ours if int(inode) in later]
            # The hooks have noted `peers`, because a short program has no open sockets any more.
            self._describe(used, collector.ask("peers", "peers", ATTACH_TIMEOUT_S)["peers"])

    def _describe(self, used: Sequence[TcpConnection] = (), peers: Sequence[PeerMessage] = ()) -> None:
        """Describe the network path of the connections in use or, if there are none, the path to `peers`."""
        namespace = path.namespace_of(self._namespace(), peers)
        if self.setup.raw.topology is None or used or peers:
            self.setup.raw.topology = path.describe(namespace, used, path.devices_of(namespace, peers))

    # -- end ------------------------------------------------------------------------------------------

    def finish(self, *, failed: bool) -> None:
        """Name the code in the samples, and add why the run ended, the counters and the exit status."""
        raw, plan = self.setup.raw, self.setup.plan
        if self._waits is not None:
            self._waits.stop()
            raw.waits = self._waits.waits()
        samples = [] if raw.collector is None else raw.collector.get("samples", [])
        self.code.name_samples(samples)
        self.code.find_lines(samples)
        if failed:
            self.stop.because("the measurement failed")
        raw.ended = self.stop.reason or raw.ended
        # Reason why the counts of perf are incomplete, or None.
        misses = self._followed.perf_misses
        if plan.counters and not self._target.follow:
            misses = "--no-follow: perf counts children and threads together, or neither"
        counters = self._perf_counts and scale_to_ledger(
            self._perf_counts, self._counted_use, self._ledger_use
        )
        if misses is not None:
            counters = all_unsupported(misses, EVENTS)
        if counters is not None:
            raw.counters["target"] = {name: count.as_record() for name, count in counters.items()}
        self.stop.measured = True
        if self.command is not None:
            raw.status = self.command.poll()


def _count_calls(reading: TotalsMessage) -> int:
    """Return the number of calls that sent or received data."""
    return sum(row["calls"] for row in reading["volume"] if row["direction"] in ("send", "receive", "mapped"))


def _used_by(reading: TotalsMessage) -> processes.Use:
    """Return the CPU time and context switches in a reading."""
    return processes.Use(
        reading["process_cpu_ns"], reading["voluntary_switches"], reading["involuntary_switches"]
    )


def _timed(reading: TotalsMessage, used: processes.Use) -> TotalsMessage:
    """Return a reading with CPU time and context switches added."""
    return {
        **reading,
        "process_cpu_ns": used.cpu_ns,
        "voluntary_switches": used.voluntary,
        "involuntary_switches": used.involuntary,
    }
