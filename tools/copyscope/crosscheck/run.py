"""One traffic, watched in turns: each block has a segment for each of our instruments and for each peer."""

import contextlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from copyscope.crosscheck.compare import Seen
from copyscope.crosscheck.peer import Peer, Quantities, attached
from copyscope.errors import RunError
from copyscope.plan.instruments import EXACT
from copyscope.plan.run_plan import RunPlan
from copyscope.plan.schedule import Segment
from copyscope.record.two_hosts import Message
from copyscope.run.session import Session, Steps
from copyscope.run.traffic import OwnTraffic

SEGMENT_S = 0.5
BLOCKS_MIN = 2


class PeerSession(Session):
    """A run whose phases are our instruments and other people's tools; one that fails is left out."""

    def __init__(self, plan: RunPlan, traffic: OwnTraffic, steps: Steps, peers: Sequence[Peer]) -> None:
        super().__init__(plan, traffic, steps)
        self._traffic = traffic
        self._peers = {peer.name: peer for peer in peers}
        self._watching: Quantities = {}
        self.seen: dict[str, list[Seen]] = {peer.name: [] for peer in peers}
        self.failed_peers: dict[str, str] = {}

    @contextlib.contextmanager
    def attached(self, phase: str, probes: tuple[str, ...]) -> Iterator[dict[str, Message]]:
        peer = self._peers.get(phase)
        if peer is None:
            with super().attached(phase, probes) as said:
                yield said
            return
        pids = {child.name: child.pid for child in self.setup.children}
        with attached(peer, pids) as self._watching:
            yield {}

    def measure(self, segment: Segment) -> None:
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
            self._keep_seen(segment.phase)

    def _keep_seen(self, name: str) -> None:
        # The record is of our own instruments only.
        _, begin, end, _ = (mark["sender"] for mark in self.raw.segments.pop()["marks"])
        messages, sent, wall_ns = (end[key] - begin[key] for key in ("messages", "bytes", "t_ns"))
        self.seen[name].append(Seen(messages, sent, wall_ns, self._watching))


def with_peers(plan: RunPlan, peers: Sequence[Peer], each_s: float, seed: int) -> RunPlan:
    """The plan of a profile, its segments replaced by blocks: each_s for each of ours and of the peers.

    Function hooks stay once they are there: after all others, and without their control.
    """
    phases = [phase for phase in (*plan.probes, *(peer.name for peer in peers)) if phase != "unarmed"]
    shuffler = random.Random(seed)
    order: list[tuple[int, str]] = []
    segment_s = min(SEGMENT_S, each_s / BLOCKS_MIN)
    for block in range(max(BLOCKS_MIN, round(each_s / segment_s))):
        shuffler.shuffle(phases)
        order += [(block, phase) for phase in phases]
    order.sort(key=lambda one: one[1] in EXACT)
    segments = [Segment(index, block, phase, segment_s) for index, (block, phase) in enumerate(order)]
    otherwise = None if plan.otherwise is None else with_peers(plan.otherwise, peers, each_s, seed)
    return replace(plan, segments=tuple(segments), otherwise=otherwise)
