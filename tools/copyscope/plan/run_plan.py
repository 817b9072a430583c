# SPDX-License-Identifier: GPL-2.0-only
"""Plan one run: the instruments of each segment, and fallback plans for kernels that lack hooks."""

import argparse
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

from copyscope.base import paths
from copyscope.base.errors import RunError
from copyscope.plan.schedule import (
    HOOKLESS,
    INSTRUMENTS,
    SAMPLED,
    SERVED_BLOCK_S,
    PlannedSegment,
    merge_phases,
    parse_count,
    parse_instruments,
    phase_probes,
    schedule_segments,
    separate_bytes,
    served_segments,
    watched_segments,
)
from copyscope.plan.tier import DEFAULT_ONE_IN, Gate, choose_tier, default_gate, given_gate
from copyscope.record.segments import why_not
from copyscope.record.session_result import Tier

# Length in seconds of a block, which has every phase once, in the live view. Attaching and detaching in each
# block is most of the cost of the live view.
LIVE_BLOCK_S = 2.0
# Reason for the default gate of a watched program, which has no warm-up and may not even have started.
NO_WARM_UP_REASON = "no warm-up to choose it"


@dataclass(frozen=True)
class RunPlan:
    """Plan of one run: its segments and instruments, with all options resolved."""

    # Instruments that each phase attaches, by phase.
    probes: Mapping[Any, tuple[str, ...]]
    # Segments in their order, to be iterated only once. Endless for a program without a known end.
    segments: Iterable[PlannedSegment]
    # Samples per second on each CPU.
    frequency_hz: int
    # Share of the hooked calls that is timed; None until it is chosen after the warm-up.
    gate: Gate | None
    # True if perf counts events in the ledger segments.
    counters: bool
    seed: int
    # True if the run is a single segment with every instrument.
    single_segment: bool = False
    # Instruments that stay attached in all segments and between them.
    always: tuple[str, ...] = ()
    # True if some send calls use the socket more than once.
    sends_in_pieces: bool = False
    # Ways in which bytes may move other than by plain copies; None for any way.
    moves: tuple[str, ...] | None = None
    # Values of the options --attach, --copy-in and --count.
    attach: str = "any"
    copy_in: str = "any"
    count: str | None = None
    # Options of the collector that name the processes to watch.
    target_options: tuple[str, ...] = ()
    # Plan for a kernel that lacks hooks which this plan needs; None to report an error instead.
    fallback: "RunPlan | None" = None

    @property
    def functions(self) -> bool:
        """True if any phase hooks functions."""
        return any("functions" in probes for probes in self.probes.values())

    def probes_of(self, segment: PlannedSegment) -> tuple[str, ...]:
        """Return the instruments of a segment."""
        return self.probes.get(segment.phase, ()) if segment.probes is None else segment.probes

    def collector(self) -> list[str]:
        """Return the collector's command line."""
        argv = [str(paths.COLLECTOR), "--frequency", str(self.frequency_hz)]
        argv += ["--sends-in-pieces"] * self.sends_in_pieces
        if self.functions:
            one_in = self.gate.one_in if self.gate else DEFAULT_ONE_IN
            argv += ["--functions", "--attach", self.attach, "--copy-in", self.copy_in]
            argv += ["--functions-gate", str(one_in), "--seed", str(self.seed)]
            argv += [] if self.moves is None else ["--moves", ",".join(self.moves)]
            argv += [] if self.count is None else ["--count", self.count]
        return [*argv, *self.target_options]

    def on_this_kernel(self, hooks: list[Mapping[str, Any]]) -> tuple["RunPlan", Tier]:
        """Return the tier, and this plan or its first fallback for which the kernel has all hooks.

        `hooks`: state of each hook, from the collector. Raises RunError if no plan is possible.
        """
        reason = why_not(self.always, hooks)
        if reason is not None:
            # Only these hooks can count the bytes of a program that does not report them.
            raise RunError(
                f"a program that copyscope did not start cannot be watched on this kernel: {reason}"
            )
        plan = self
        tier = choose_tier(plan.functions, hooks, by_name=plan.fallback is None)
        reason = tier.reason if plan.functions and not tier.exact else plan._find_missing_hook(hooks)
        while reason is not None:
            if plan.fallback is None:
                raise RunError(f"{reason}; use --instruments auto, without --exact")
            plan = plan.fallback
            reason = plan._find_missing_hook(hooks)
        return plan, tier

    def _find_missing_hook(self, hooks: list[Mapping[str, Any]]) -> str | None:
        """Return a message about a missing hook that an instrument of this plan needs, or None."""
        return why_not({name for probes in self.probes.values() for name in probes}, hooks)


def traffic_plan(
    args: argparse.Namespace,
    instruments: tuple[str, ...],
    seed: int,
    *,
    in_pieces: bool,
    moves: tuple[str, ...] = (),
) -> RunPlan:
    """Plan a run of our own traffic. Raises UsageError for a duration that is too short.

    `in_pieces`, `moves`: see RunPlan.sends_in_pieces and RunPlan.moves.
    """
    auto = args.instruments == "auto"
    attempts = [(instruments, True)]
    if auto:
        # Do not sample and hook functions in the same segment: a sample during a kprobe's program is lost
        # (bpf_prog_active).
        attempts = [(SAMPLED, True)] if args.messages is not None else [*attempts, (SAMPLED, True)]
    # Instruments that the user named are required. The hooks that count bytes have no option.
    if auto or set(instruments) <= set(HOOKLESS):
        attempts.append((tuple(name for name in instruments if name in HOOKLESS), False))
    plans = [_plan_traffic(args, names, seed, counts_bytes=counts) for names, counts in attempts]
    plans = [replace(plan, sends_in_pieces=in_pieces, moves=moves) for plan in plans]
    return reduce(lambda fallback, plan: replace(plan, fallback=fallback), reversed(plans))


def watch_plan(args: argparse.Namespace, seed: int, target_options: Sequence[str] = ()) -> RunPlan:
    """Plan the watch of a program. `--instruments auto` hooks functions only with --exact.

    `target_options`: options of the collector that name the processes to watch.
    """
    instruments = parse_instruments(args.instruments) if args.instruments != "auto" else SAMPLED
    if args.instruments == "auto" and args.exact:
        instruments = INSTRUMENTS
    return replace(_plan_program(args, instruments, seed), target_options=tuple(target_options))


def served_plan(args: argparse.Namespace, seed: int, target_options: Sequence[str] = ()) -> RunPlan:
    """Plan an endless watch of a program, measured by periodic sampling only."""
    plan = _plan_program(args, ("sampler",), seed)
    segments = served_segments(seed, args.interval or SERVED_BLOCK_S)
    return replace(plan, segments=segments, target_options=tuple(target_options))


def _plan_traffic(
    args: argparse.Namespace, instruments: tuple[str, ...], seed: int, *, counts_bytes: bool
) -> RunPlan:
    """Plan a run of our own traffic with these instruments.

    `counts_bytes`: attach the hooks that count bytes, too.
    """
    single_segment = args.messages is not None
    phases = phase_probes(instruments)
    if not counts_bytes:
        phases = {phase: probes for phase, probes in separate_bytes(phases).items() if phase != "bytes"}
    elif not single_segment:
        phases = separate_bytes(phases)
    phases = merge_phases(phases) if single_segment else phases
    gate = given_gate(args.gate, "--messages" if single_segment else None)
    return _plan(
        args,
        instruments,
        seed,
        probes=phases,
        segments=_single_segment(phases)
        if single_segment
        else tuple(schedule_segments(args.duration, tuple(phases), seed)),
        gate=gate,
        single_segment=single_segment,
        copy_in=args.copy_in,
    )


def _plan_program(args: argparse.Namespace, instruments: tuple[str, ...], seed: int) -> RunPlan:
    """Plan the watch of a program.

    Copies are counted in place of bytes, and packets in the same segments as calls.
    """
    replacements = {"bytes": ("copies",), "calls": ("calls", "packets", "shape")}
    phases = {
        phase: tuple(name for probe in probes for name in replacements.get(probe, (probe,)))
        for phase, probes in phase_probes(instruments).items()
    }
    always: tuple[str, ...] = ("watch", "volume")
    if args.whole:
        phases = merge_phases(phases)
        if any("calls" in names for names in phases.values()):
            # The hook of `calls` slows down all system calls anyway, so the hook of splices need not wait.
            always = ("watch", "splices", "volume")
    block_s = LIVE_BLOCK_S if args.live else None
    return _plan(
        args,
        instruments,
        seed,
        probes=phases,
        segments=_single_segment(phases, args.duration)
        if args.whole
        else watched_segments(args.duration, tuple(phases), seed, block_s),
        gate=given_gate(args.gate, "--whole" if args.whole else None) or default_gate(NO_WARM_UP_REASON),
        single_segment=args.whole,
        always=always,
    )


def _single_segment(phases: Iterable[str], duration_s: float | None = None) -> tuple[PlannedSegment, ...]:
    """Return the entire run as one segment of the only phase. `duration_s`: None means until the run ends."""
    return tuple(
        PlannedSegment(0, 0, phase, math.inf if duration_s is None else duration_s) for phase in phases
    )


def _plan(args: argparse.Namespace, instruments: tuple[str, ...], seed: int, **more: Any) -> RunPlan:
    """Return a plan with the options that all plans share. `more`: other fields of the plan."""
    return RunPlan(
        frequency_hz=args.frequency,
        counters="counters" in instruments,
        seed=seed,
        attach=args.attach,
        count=None if args.count is None else parse_count(args.count),
        **more,
    )
