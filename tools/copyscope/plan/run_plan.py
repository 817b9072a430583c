"""The plan of one run, and what becomes of it on a kernel that does not have all of the hooks."""

from dataclasses import dataclass
from typing import Any

from copyscope.errors import RunError
from copyscope.plan import gate
from copyscope.plan.arms import Segment
from copyscope.plan.tier import Tier, choose_tier
from copyscope.record.hooks import why_not
from copyscope.topology import LinkSettings


@dataclass(frozen=True)
class RunPlan:
    """Everything that one run does, resolved; made by commands/profile.py."""

    kind: str
    link: LinkSettings
    send_options: tuple[str, ...]
    receive_options: tuple[str, ...]
    segments: tuple[Segment, ...]
    probes: dict[str, tuple[str, ...]]
    messages: int | None
    warmup_s: float
    frequency_hz: int
    size_bytes: int
    # How many calls are timed; None: the default, and of those with hooked functions what the warm-up says.
    gate: gate.Gate | None
    counters: bool
    seed: int
    # Calls are counted where they return: some of them pass the socket in pieces.
    count_returns: bool = False
    # Calls are counted in segments of their own, where bytes are: those that time them need not.
    count_timed: bool = False
    attach: str = "any"
    copy_in: str = "any"
    count: str | None = None
    keep: str | None = None
    # What to do on a kernel that does not take the hooks of this plan; None: such a kernel is an error.
    otherwise: "RunPlan | None" = None

    @property
    def functions(self) -> bool:
        """Whether any arm hooks functions."""
        return any("functions" in probes for probes in self.probes.values())

    def on_this_kernel(self, hooks: list[dict[str, Any]]) -> "tuple[RunPlan, Tier]":
        """This plan, or the first of what is to be done otherwise that the kernel has the hooks for.

        Raises RunError where nothing else is to be done.
        """
        plan = self
        tier = choose_tier(plan.functions, hooks, by_name=plan.otherwise is None)
        why = tier.reason if plan.functions and not tier.exact else plan._why_not(hooks)
        while why is not None:
            if plan.otherwise is None:
                raise RunError(f"{why}; use --instruments auto")
            plan = plan.otherwise
            why = plan._why_not(hooks)
        return plan, tier

    def _why_not(self, hooks: list[dict[str, Any]]) -> str | None:
        """The hook that one of the instruments needs and this kernel does not have."""
        return why_not({name for probes in self.probes.values() for name in probes}, hooks)
