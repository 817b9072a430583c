# SPDX-License-Identifier: GPL-2.0-only
"""A session in which copyscope's instruments and other tools observe the same traffic in turn."""

import contextlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from agreement import Observation
from copyscope.base.errors import RunError
from copyscope.plan.run_plan import RunPlan
from copyscope.plan.schedule import EXACT, PlannedSegment
from copyscope.record.messages import SwitchMessage
from copyscope.record.moved import MeasuredSegment
from copyscope.run.session import RunProgress, Session
from copyscope.run.traffic import OwnTraffic
from peer import Peer, Quantities, attached

SEGMENT_S = 0.5
BLOCKS_MIN = 2


class PeerSession(Session):
    """A session with one phase for each instrument and each tool. A tool that fails is left out."""

    def __init__(self, plan: RunPlan, traffic: OwnTraffic, steps: RunProgress, peers: Sequence[Peer]) -> None:
        super().__init__(plan, traffic, steps)
        self._traffic = traffic
        self._peers = {peer.name: peer for peer in peers}
        self._peer_counts: Quantities = {}
        self.observations: dict[str, list[Observation]] = {peer.name: [] for peer in peers}
        self.failed_peers: dict[str, str] = {}

    @contextlib.contextmanager
    def attached(self, phase: str, probes: tuple[str, ...]) -> Iterator[dict[str, SwitchMessage]]:
        peer = self._peers.get(phase)
        if peer is None:
            with super().attached(phase, probes) as answers:
                yield answers
            return
        pids = {child.name: child.pid for child in self.setup.children}
        with attached(peer, pids) as self._peer_counts:
            yield {}

    def measure(self, segment: PlannedSegment) -> None:
        if segment.phase in self.failed_peers:
            return
        try:
            super().measure(segment)
        except RunError as error:
            if segment.phase not in self._peers or not str(error).startswith(segment.phase):
                raise
            self.failed_peers[segment.phase] = str(error).removeprefix(f"{segment.phase}: ")
            self._traffic.pause()
            return
        if segment.phase in self._peers:
            self._keep_observation(segment.phase)

    def _keep_observation(self, name: str) -> None:
        """Move the last segment out of the record, which has copyscope's own segments only."""
        segment = self.raw.segments.pop()
        assert isinstance(segment, MeasuredSegment)
        _, begin, end, _ = (mark["sender"] for mark in segment.marks)
        messages, sent = end["messages"] - begin["messages"], end["bytes"] - begin["bytes"]
        wall_ns = end["t_ns"] - begin["t_ns"]
        self.observations[name].append(Observation(messages, sent, wall_ns, self._peer_counts))


def with_peers(plan: RunPlan, peers: Sequence[Peer], each_s: float, seed: int) -> RunPlan:
    """Replace the segments of a plan by blocks in which each instrument and each tool has one segment.

    `each_s`: seconds that each gets in total. Function hooks stay attached once they are there, so their
    segments come last, without their control.
    """
    phases = [phase for phase in (*plan.probes, *(peer.name for peer in peers)) if phase != "unarmed"]
    shuffler = random.Random(seed)
    order: list[tuple[int, str]] = []
    segment_s = min(SEGMENT_S, each_s / BLOCKS_MIN)
    for block in range(max(BLOCKS_MIN, round(each_s / segment_s))):
        shuffler.shuffle(phases)
        order += [(block, phase) for phase in phases]
    order.sort(key=lambda turn: turn[1] in EXACT)
    segments = [PlannedSegment(index, block, phase, segment_s) for index, (block, phase) in enumerate(order)]
    otherwise = None if plan.fallback is None else with_peers(plan.fallback, peers, each_s, seed)
    return replace(plan, segments=tuple(segments), fallback=otherwise)
