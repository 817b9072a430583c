"""The processes of a watched program: who they are now, and that the collector knows them all."""

import time
from contextlib import ExitStack

from copyscope.record.session_result import Totals
from copyscope.run import processes
from copyscope.run.child import Program
from copyscope.run.perf_stat import PerfStat
from copyscope.run.target import Target

# Attaching waits for every CPU; on a machine that is emulated, or overloaded, that takes its time.
ASK_S = 60.0
PERF_TRIES = 5
# A process may take the name that is looked for at any moment (prctl(2)).
LOOK_FOR_NAMES_EVERY_S = 0.5

# Births, exits, and of each process whether the hooks saw it being forked.
Population = tuple[int, int, list[list[int]]]


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
        self._settled: Population | None = None
        # How dear it may be to look for names.
        self.searches = processes.Seldom(1.0)

    def find(self, volume: Totals, *, search: bool = False) -> bool:
        """Tell the collector of processes that it cannot have seen coming, and note everybody's name.

        /proc is searched only when a process may have come or gone: that takes CPU time from whoever is
        watched. Returns whether it was.
        """
        search = search or self._may_have_changed(volume)
        told = len(self._told)
        followed = {pid: forked for pid, forked in volume["processes"]}
        if search:
            with self.searches:
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

    def forget_ended(self) -> None:
        """Those that are gone: of a program that is watched for ever there are more and more."""
        for pid in (self._names.keys() | self._told) - self.pids:
            self._names.pop(pid, None)
            self._told.discard(pid)
        self._target.forget(self.pids)

    def alive(self) -> bool:
        return any(processes.is_alive(pid) for pid in self.pids)

    def awaited(self) -> int | None:
        """A process whose end may be that of the program; None when others may still come."""
        if self._target.how in ("comm", "cgroup"):
            return None
        # With none left alive, the end of any of them is the answer: it has come.
        return next((pid for pid in self.pids if processes.is_alive(pid)), min(self.pids, default=None))

    def _may_have_changed(self, volume: Totals) -> bool:
        how = self._target.how
        old = how == "comm" and time.monotonic() - self._looked_s > LOOK_FOR_NAMES_EVERY_S
        old = old and self.searches.are_cheap()
        return how == "cgroup" or old or _population(volume) != self._settled

    def look_at_new(self, volume: Totals) -> None:
        """The clocks of processes that have begun since, as the hooks on fork and exec saw."""
        by_exec = self._target.how == "comm"
        new = self.cpu.new_among(pid for pid, by_fork in volume["processes"] if by_fork or by_exec)
        self.cpu.glance(new, fresh=True, counted=True)

    def threads(self, volume: Totals) -> int:
        """Of all its processes, also those nobody has looked for yet; the most at the ends of a segment.

        Each may be inside one call there.
        """
        known = self.pids | {pid for pid, _ in volume["processes"]}
        before, self._threads = self._threads, sum(len(processes.threads(pid)) for pid in known)
        return max(before, self._threads)

    def same_processes(self, volume: Totals) -> bool:
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


def _population(volume: Totals) -> Population:
    """What changes whenever a thread or process of the target is made or ends: the hooks see both."""
    totals = volume["totals"]
    return totals["births"], totals["exits"], sorted(volume["processes"])
