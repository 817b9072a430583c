# SPDX-License-Identifier: GPL-2.0-only
"""`copyscope watch --serve`: measure a program until Ctrl-C, and answer GET / and /metrics meanwhile.

Each session lasts until the program ends. The next session begins when the program runs again.
"""

import argparse
import os
import secrets
import time
from collections.abc import Mapping
from dataclasses import replace

from copyscope import VERSION
from copyscope.base.errors import RunError, UsageError
from copyscope.base.spelling import one_line
from copyscope.commands import entry
from copyscope.commands.watch_target import find_target, target_section
from copyscope.ledger.derive import Window
from copyscope.plan.run_plan import served_plan
from copyscope.plan.schedule import SERVED_BLOCK_S
from copyscope.record.messages import CollectorReport, TotalsMessage
from copyscope.report import live_page
from copyscope.report.openmetrics import Family, MetricsText, write_families
from copyscope.report.served_counts import ServedCounts
from copyscope.report.served_endpoint import Endpoint
from copyscope.report.served_programs import NamedPrograms, ProgramWeights
from copyscope.run import processes
from copyscope.run.cgroup_names import CgroupNames
from copyscope.run.program import WatchedProgram
from copyscope.run.session import Session, SilentProgress
from copyscope.run.target import WatchTarget
from copyscope.taxonomy.taxonomy import Taxonomy

# Reasons for the end of a session after which the next session begins. WatchedProgram sets PROGRAM_ENDED.
PROGRAM_ENDED, FAILED = "the program ended", "the measurement failed"
CGROUP_REMOVED = "the cgroup was removed"
# Interval between searches for a removed cgroup, and pause after a failed session.
SEARCH_INTERVAL_S, RETRY_S = 1.0, 15.0


def serve(args: argparse.Namespace, target: WatchTarget) -> int:
    """Serve metrics of the target until a signal, and return 0.

    Raises RunError if the address cannot be used or the first session fails.
    """
    metrics = MetricsServer(args, target)
    write_families(())  # raises RunError now if its library is missing
    with Endpoint(args.serve, metrics.text, args.serve_name.split(","), metrics.page) as endpoint:
        try:
            metrics.print_message(f"http://{endpoint.address}/ (for Prometheus: /metrics) until Ctrl-C")
            while (stop_reason := metrics.run_session(target)) in (PROGRAM_ENDED, CGROUP_REMOVED, FAILED):
                metrics.print_message(f"{stop_reason}; waiting until the program runs again")
                target = next_target(args, target, metrics.comm)
        except KeyboardInterrupt:
            pass
    return 0


def next_target(args: argparse.Namespace, target: WatchTarget, comm: str | None) -> WatchTarget:
    """Return the target of the next session, after the program has ended.

    A PID is replaced by the process's name, because the restarted program has another PID. For a cgroup,
    wait until the cgroup exists again.

    target: target of the last session
    comm: name of the watched processes
    """
    if target.how == "pid":
        return replace(target, how="comm", pids=(), comm=comm)
    while target.how == "cgroup":
        try:
            return find_target(args, [])
        except RunError:
            time.sleep(SEARCH_INTERVAL_S)
    return target


class MetricsServer(SilentProgress):
    """A watched program's counts over all sessions, and their text for Prometheus.

    The session calls done() after each segment, which updates the counts.
    """

    def __init__(self, args: argparse.Namespace, target: WatchTarget) -> None:
        """Set up the metrics that do not change: target, host and version.

        args: options of the command
        target: target of the first session
        """
        self.comm = target.comm or _common_name(target.pids)
        self._args, self._name = args, target.name()
        # The programs to name if all programs are watched.
        self._programs = NamedPrograms(args.top, CgroupNames()) if target.how == "all" else None
        self._counts = ServedCounts(self._programs)
        # Metrics that text() returns. The list is replaced as a whole, because another thread reads it.
        self._families: list[Family] = []
        # Last sampled second in which the program sent or received. It is also replaced as a whole.
        self._sampled: live_page.SampledRun | None = None
        # Time of the last reading of the byte counters.
        self._last_reading_ns: int | None = None
        self._session: Session
        self._program: WatchedProgram
        self._window: Window
        # For a cgroup: the target, and the inode of the cgroup when the session began.
        self._cgroup_identity: tuple[WatchTarget, int] | None = None
        machine = os.uname()
        name = one_line(self.comm or self._name)
        self._counts.own["watched", (name, target.how, machine.nodename, machine.release, VERSION)] = 1
        self._counts.own["unwatched_seconds", ()] = 0.0

    def print_message(self, text: str) -> None:
        """Print a message about the target on stderr, unless --quiet is given."""
        if not self._args.quiet:
            entry.print_message(f"{self._name}: {text}")

    def text(self, answer_counts: Mapping[str, int], accept: str) -> MetricsText:
        """Return all metrics in a format that the client accepts.

        answer_counts: HTTP status -> number of answers with this status
        accept: value of the HTTP header Accept
        """
        scrapes = [({"status": status}, count) for status, count in sorted(answer_counts.items())]
        families = (
            family._replace(samples=scrapes) if family.name == "scrapes" else family
            for family in self._families
        )
        return write_families(families, accept)

    def page(self) -> bytes:
        """Return the page with the path of a byte as HTML."""
        interval_s = self._args.interval or SERVED_BLOCK_S
        return live_page.write(self.comm or self._name, self._families, self._sampled, interval_s)

    def run_session(self, target: WatchTarget) -> str | None:
        """Measure until the program ends or a signal arrives, and return the reason why the session ended.

        Raises RunError or OSError if the first session fails.
        """
        args = self._args
        section = target_section(target, self._name) | {"duration_s": None}
        self._window = Window(section, args.frequency, in_turn=True)
        self._program = WatchedProgram(target, None, endless=True)
        self._counts.begin_session()
        with self._program:
            try:
                self._cgroup_identity = None
                if target.cgroup is not None:
                    self._cgroup_identity = target, target.cgroup.stat().st_ino
                plan = served_plan(args, secrets.randbelow(1 << 31), target.arguments())
                self._session = Session(plan, self._program, self)
                errors = self._session.perform().errors
            except (RunError, OSError) as error:  # OSError: the cgroup was removed again
                if self._last_reading_ns is None:
                    raise
                errors = [str(error)]
        if self._program.last is not None:
            self._add_reading(self._program.last)
        stop_reason = self._program.stop.reason
        if errors and stop_reason in (None, FAILED):
            self.print_message(errors[0])
            time.sleep(RETRY_S)
            return FAILED
        return stop_reason

    def done(self) -> None:
        """Add the counts of the latest segment, and stop the session if the cgroup was removed."""
        raw, session, own_metrics = self._session.raw, self._session, self._counts.own
        segment = session.last_segment()
        begin, end = segment.marks[0]["target"], segment.marks[2]["target"]
        if segment.index == 0 and self._last_reading_ns is not None:
            own_metrics["unwatched_seconds", ()] += (begin["t_ns"] - self._last_reading_ns) / 1e9
        self._counts.read(end)
        if self._programs is not None:
            self._counts.read_programs(session.ask_programs())
        load = session.read_load()
        self._window.add_load(segment.block, load)
        if segment.phase == "ledger":
            self._add_samples(session.ask_samples(forget=True))
            self._window.forget(raw)
            self._program.forget_ended()
        own_metrics["watcher_cpu_seconds", ()] = (load.own_ns or 0) / 1e9
        own_metrics["watcher_resident_bytes", ()] = sum(
            processes.resident_bytes(pid) for pid in (os.getpid(), session.setup.collector.pid)
        )
        self._add_reading(end)
        if self._cgroup_identity is not None and _was_removed(*self._cgroup_identity):
            self._program.stop.because(CGROUP_REMOVED)

    def _add_samples(self, report: CollectorReport) -> None:
        """Add the samples of a sampled second."""
        run = self._window.run(self._session.raw, report)
        weights: ProgramWeights = {}
        if self._programs is not None:
            weights = self._programs.weights(report["samples"], Taxonomy.load())
        self._counts.sampled(run, weights)
        if run.derived.rx_bytes or run.derived.tx_bytes:
            self._sampled = live_page.SampledRun(run, time.time())

    def _add_reading(self, totals: TotalsMessage) -> None:
        """Add a reading of the byte counters (`totals`), and publish the updated metrics."""
        self._last_reading_ns = totals["t_ns"]
        self._counts.read(totals)
        self._counts.own["read_timestamp_seconds", ()] = time.time()
        self._families = list(self._counts.families())


def _was_removed(target: WatchTarget, inode: int) -> bool:
    """Return True if a target's cgroup is gone or its inode has changed.

    A restarted systemd unit gets a new cgroup directory.
    """
    assert target.cgroup is not None
    try:
        return target.cgroup.stat().st_ino != inode
    except OSError:
        return True


def _common_name(pids: tuple[int, ...]) -> str | None:
    """Return the name that some processes share, or None if none runs. Raises UsageError if names differ."""
    running = [process for process in map(processes.read_process, pids) if process is not None]
    names = {process.comm for process in running}
    if len(names) > 1:
        raise UsageError(f"--serve: {', '.join(sorted(names))}: several programs; give pids of one name")
    return next(iter(names), None)
