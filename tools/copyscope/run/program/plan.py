"""What a run beside a watched program does, and what it leaves behind."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from copyscope import paths
from copyscope.errors import RunError
from copyscope.plan.arms import Segment
from copyscope.plan.gate import Gate
from copyscope.plan.tier import Tier, choose_tier
from copyscope.record.hooks import why_not
from copyscope.record.program.connections import Connections
from copyscope.record.program.segments import Sums
from copyscope.run.child import Message
from copyscope.run.program import schedule
from copyscope.run.program.command import Output
from copyscope.run.program.pace import Reading
from copyscope.run.program.target import Target

# Of the segments that count each call, where others do not, so many are kept: the last ones.
COUNTED_KEPT = 200


@dataclass(frozen=True)
class WatchPlan:
    """What one such run does, resolved; made by commands/watch.py."""

    target: Target
    probes: dict[Any, tuple[str, ...]]
    duration_s: float | None
    frequency_hz: int
    gate: Gate
    # Of the calls in the segments that time calls, one in so many is timed.
    calls_one_in: int
    counters: bool
    seed: int
    block_s: float | None = None
    # One segment from the first moment to the last, with every instrument.
    whole: bool = False
    # Before and after, how fast a program that is there already goes without anything of ours.
    baseline: bool = True
    # Where a command prints: stdout may be for the record, the terminal for the screen.
    output: Output = "own"
    attach: str = "any"
    count: str | None = None
    # What to do on a kernel that takes no function hooks; None: such a kernel is an error.
    otherwise: WatchPlan | None = None

    @property
    def functions(self) -> bool:
        """Whether any arm hooks functions."""
        return any("functions" in probes for probes in self.probes.values())

    def on_this_kernel(self, hooks: list[dict[str, Any]]) -> tuple[WatchPlan, Tier]:
        """This plan, or what is to be done otherwise where no function can be hooked.

        Raises RunError where nothing else is to be done.
        """
        plan = self
        tier = choose_tier(plan.functions, hooks, by_name=plan.otherwise is None)
        if plan.functions and tier.exact:
            tier = tier.gated(plan.gate)
        elif plan.functions:
            if plan.otherwise is None:
                raise RunError(f"{tier.reason}; use --instruments auto")
            plan = plan.otherwise
        # Nothing but the hooks knows what a program moves that does not say it.
        why = why_not(
            {"watch", "volume", *(name for probes in plan.probes.values() for name in probes)}, hooks
        )
        if why is not None:
            raise RunError(f"a program that copyscope did not start cannot be watched on this kernel: {why}")
        return plan, tier

    def collector(self) -> list[str]:
        """The collector's command line."""
        one_in = str(self.gate.one_in)
        argv = [str(paths.COLLECTOR), "--frequency", str(self.frequency_hz)]
        argv += ["--gate", str(self.calls_one_in)]
        if self.functions:
            argv += ["--functions", "--attach", self.attach]
            argv += ["--functions-gate", one_in, "--seed", str(self.seed)]
            argv += [] if self.count is None else ["--count", self.count]
        return [*argv, *self.target.arguments()]

    def segments(self) -> Iterator[Segment]:
        """Windows in time, one after the other."""
        if self.whole:
            (arm,) = self.probes
            yield Segment(0, 0, arm, math.inf if self.duration_s is None else self.duration_s)
            return
        yield from schedule.segments(self.duration_s, list(self.probes), self.seed, self.block_s)


@dataclass
class Seen:
    """What a run leaves behind, however it ends."""

    started: str = field(default_factory=lambda: datetime.now(UTC).isoformat(timespec="seconds"))
    # Of the older ones only the rows, and in `sums` what moved in them (record/program/segments.py).
    segments: list[Any] = field(default_factory=list)
    sums: Sums = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    ended: str = "the time was over"
    tier: Tier | None = None
    pids: dict[int, str] = field(default_factory=dict)
    topology: dict[str, Any] | None = None
    machine: dict[str, Any] | None = None
    connections: Connections = field(default_factory=Connections)
    collector: Message | None = None
    counters: dict[str, Any] = field(default_factory=dict)
    status: int | None = None
    wall_s: float = 0.0
    # Why the calls were counted for a part of the time only, and why no longer; what was counted then.
    spared: str | None = None
    spared_until: str | None = None
    counted: deque[Any] = field(default_factory=lambda: deque(maxlen=COUNTED_KEPT))
    # With nothing attached: before the first hook came, and after the last had gone.
    before: list[Reading] = field(default_factory=list)
    after: list[Reading] = field(default_factory=list)
    own_cpu_ns: int | None = None
    # What the machine had done when the first segment began, and when the last was over.
    loads: list[dict[str, Any]] = field(default_factory=list)
