"""The plan of one run, of our own traffic or of a program: which hooks in which segments, and what becomes of
it on a kernel that does not have all of them."""

import argparse
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from copyscope import paths
from copyscope.errors import RunError
from copyscope.plan import gate
from copyscope.plan.instruments import (
    HOOKLESS,
    INSTRUMENTS,
    SAMPLED,
    all_at_once,
    bytes_apart,
    parse_count,
    parse_instruments,
    phase_probes,
)
from copyscope.plan.schedule import (
    SERVED_BLOCK_S,
    Segment,
    schedule_segments,
    served_segments,
    watched_segments,
)
from copyscope.plan.tier import choose_tier
from copyscope.record.hooks import why_not
from copyscope.record.session_result import Tier

# Every phase once. Each block has its attaching and detaching, which is most of what the live view costs.
LIVE_BLOCK_S = 2.0
# A program of somebody else's goes at its own pace, and need not have begun.
NO_WARM_UP = "no warm-up to choose it"


@dataclass(frozen=True)
class RunPlan:
    """Everything that the instruments of one run do, resolved."""

    probes: Mapping[Any, tuple[str, ...]]
    # To be gone through once; of a program whose end nobody knows without an end.
    segments: Iterable[Segment]
    frequency_hz: int
    # How many calls of hooked functions are timed; None: what the warm-up says.
    gate: gate.Gate | None
    counters: bool
    seed: int
    # One segment from the first moment to the last, with every instrument.
    whole: bool = False
    # Instruments that are attached in all segments and between them.
    always: tuple[str, ...] = ()
    # Some calls pass the socket more than once.
    sends_in_pieces: bool = False
    # How bytes move beside plain copies; None: as may be.
    moves: tuple[str, ...] | None = None
    attach: str = "any"
    copy_in: str = "any"
    count: str | None = None
    # The collector's options that say whom it watches.
    whom: tuple[str, ...] = ()
    # What to do on a kernel that does not take the hooks of this plan; None: such a kernel is an error.
    otherwise: "RunPlan | None" = None

    @property
    def functions(self) -> bool:
        """Whether any phase hooks functions."""
        return any("functions" in probes for probes in self.probes.values())

    def collector(self) -> list[str]:
        """The collector's command line."""
        argv = [str(paths.COLLECTOR), "--frequency", str(self.frequency_hz)]
        argv += ["--sends-in-pieces"] * self.sends_in_pieces
        if self.functions:
            one_in = self.gate.one_in if self.gate else gate.DEFAULT
            argv += ["--functions", "--attach", self.attach, "--copy-in", self.copy_in]
            argv += ["--functions-gate", str(one_in), "--seed", str(self.seed)]
            argv += [] if self.moves is None else ["--moves", ",".join(self.moves)]
            argv += [] if self.count is None else ["--count", self.count]
        return [*argv, *self.whom]

    def on_this_kernel(self, hooks: list[dict[str, Any]]) -> tuple["RunPlan", Tier]:
        """This plan, or the first of what is to be done otherwise that the kernel has the hooks for.

        Raises RunError where nothing else is to be done.
        """
        why = why_not(self.always, hooks)
        if why is not None:
            # Nothing but the hooks knows what a program moves that does not say it.
            raise RunError(f"a program that copyscope did not start cannot be watched on this kernel: {why}")
        plan = self
        tier = choose_tier(plan.functions, hooks, by_name=plan.otherwise is None)
        why = tier.reason if plan.functions and not tier.exact else plan._why_not(hooks)
        while why is not None:
            if plan.otherwise is None:
                raise RunError(f"{why}; use --instruments auto, without --exact")
            plan = plan.otherwise
            why = plan._why_not(hooks)
        return plan, tier

    def _why_not(self, hooks: list[dict[str, Any]]) -> str | None:
        """The hook that one of the instruments needs and this kernel does not have."""
        return why_not({name for probes in self.probes.values() for name in probes}, hooks)


def traffic_plan(
    args: argparse.Namespace,
    instruments: tuple[str, ...],
    seed: int,
    *,
    in_pieces: bool,
    moves: tuple[str, ...] = (),
) -> RunPlan:
    """For traffic of our own. Raises UsageError for a duration that is too short."""
    auto = args.instruments == "auto"
    ways = [(instruments, True)]
    if auto:
        # One segment for all, and a sample that falls into a kprobe's program is lost (bpf_prog_active).
        ways = [(SAMPLED, True)] if args.messages is not None else [*ways, (SAMPLED, True)]
    # Hooks that were asked for by name are not done without; those that count bytes nobody names.
    if auto or set(instruments) <= set(HOOKLESS):
        ways.append((tuple(name for name in instruments if name in HOOKLESS), False))
    plans = [_of_traffic(args, names, seed, counts_bytes=counts) for names, counts in ways]
    plans = [replace(plan, sends_in_pieces=in_pieces, moves=moves) for plan in plans]
    return reduce(lambda otherwise, plan: replace(plan, otherwise=otherwise), reversed(plans))


def watch_plan(args: argparse.Namespace, seed: int, whom: Sequence[str] = ()) -> RunPlan:
    """For a program; `auto` samples, and is exact where that is asked for."""
    instruments = parse_instruments(args.instruments) if args.instruments != "auto" else SAMPLED
    if args.instruments == "auto" and args.exact:
        # A sample that falls into a kprobe's program is lost (bpf_prog_active): not both in one segment.
        instruments = ("functions",) if args.whole else INSTRUMENTS
    return replace(_of_program(args, instruments, seed), whom=tuple(whom))


def served_plan(args: argparse.Namespace, seed: int, whom: Sequence[str] = ()) -> RunPlan:
    """For a program that is served without an end: samples alone, now and then."""
    plan = _of_program(args, ("sampler",), seed)
    return replace(plan, segments=served_segments(seed, args.interval or SERVED_BLOCK_S), whom=tuple(whom))


def _of_traffic(
    args: argparse.Namespace, instruments: tuple[str, ...], seed: int, *, counts_bytes: bool
) -> RunPlan:
    whole = args.messages is not None
    phases = phase_probes(instruments)
    if not counts_bytes:
        phases = {phase: probes for phase, probes in bytes_apart(phases).items() if phase != "bytes"}
    elif not whole:
        phases = bytes_apart(phases)
    phases = all_at_once(phases) if whole else phases
    chosen = gate.given(args.gate, "--messages" if whole else None)
    return _plan(
        args,
        instruments,
        seed,
        probes=phases,
        segments=_one(phases) if whole else tuple(schedule_segments(args.duration, tuple(phases), seed)),
        gate=chosen,
        whole=whole,
        copy_in=args.copy_in,
    )


def _of_program(args: argparse.Namespace, instruments: tuple[str, ...], seed: int) -> RunPlan:
    """The phases of a run of our own, with copies in the place of bytes, and packets beside the calls."""
    extra = {"bytes": ("copies",), "calls": ("calls", "packets", "shape")}
    phases = {
        phase: tuple(name for probe in probes for name in extra.get(probe, (probe,)))
        for phase, probes in phase_probes(instruments).items()
    }
    if args.whole:
        # While the timing of calls slows them down, nothing else has to wait until it is needed (on_sight.h).
        ((phase, names),) = all_at_once(phases).items()
        phases = {phase: tuple(sorted(names, key=lambda name: name != "calls"))}
    block_s = LIVE_BLOCK_S if args.live else None
    return _plan(
        args,
        instruments,
        seed,
        probes=phases,
        segments=_one(phases, args.duration)
        if args.whole
        else watched_segments(args.duration, tuple(phases), seed, block_s),
        gate=gate.given(args.gate, "--whole" if args.whole else None) or gate.default(NO_WARM_UP),
        whole=args.whole,
        always=("watch", "volume"),
    )


def _one(phases: Iterable[str], duration_s: float | None = None) -> tuple[Segment, ...]:
    """The whole run as one segment; None: until its end."""
    return tuple(Segment(0, 0, phase, math.inf if duration_s is None else duration_s) for phase in phases)


def _plan(args: argparse.Namespace, instruments: tuple[str, ...], seed: int, **more: Any) -> RunPlan:
    return RunPlan(
        frequency_hz=args.frequency,
        counters="counters" in instruments,
        seed=seed,
        attach=args.attach,
        count=None if args.count is None else parse_count(args.count),
        **more,
    )
