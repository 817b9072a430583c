"""What switching on costs: the goodput that ours loses, and the best peer with the same information. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

# Ours, and the peers that give the same information.
SAME_INFORMATION = {
    "ours": ("perf_record", "bpftrace_profile"),
    "ours_calls": ("perf_trace", "perf_trace_bpf", "bpftrace_calls"),
}
# Ours is to lose so many times less.
TIMES_LESS = 3


@dataclass(frozen=True)
class Losses:
    """Goodput of ours and of the best peer, each over that without instruments, at one size."""

    ours: dict[str, Any]
    peer: dict[str, Any]

    @property
    def times_less(self) -> str:
        """How many times more the peer loses; at least: its smallest loss over our largest."""
        if self.ours["high"] >= 1 or self.peer["high"] >= 1:
            who = [name for name, made in (("ours", self.ours), ("the peer", self.peer)) if made["high"] >= 1]
            middle = f"no loss found: {', '.join(who)}"
        else:
            middle = f"{(1 - self.peer['ratio']) / (1 - self.ours['ratio']):.1f}"
        if self.ours["low"] >= 1:
            return middle
        return f"{middle} (at least {max(0.0, (1 - self.peer['high']) / (1 - self.ours['low'])):.1f})"


def losses(comparisons: list[dict[str, Any]]) -> Iterator[Losses]:
    """Ours of each size that has a peer that was measured and loses something."""
    against_off = [made for made in comparisons if made["peer"] == "off" and made["quantity"] == "gbps"]
    for made in against_off:
        peers = [
            peer
            for peer in against_off
            if peer["factors"] == made["factors"] and peer["ours"] in SAME_INFORMATION.get(made["ours"], ())
        ]
        best = max(peers, key=lambda peer: float(peer["ratio"]), default=None)
        if best is not None and best["ratio"] < 1:
            yield Losses(made, best)


def percent(made: dict[str, Any]) -> str:
    # plus 0.0: a small gain is no loss of "-0.0"
    loss, low, high = (round(100 * (1 - made[key]), 1) + 0.0 for key in ("ratio", "high", "low"))
    return f"{loss:.1f} % ({low:.1f} to {high:.1f})"
