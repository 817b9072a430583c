"""What became of the hooks that instruments need, and why. Pure."""

from collections.abc import Iterable
from typing import Any

from msgspec import convert

from copyscope.record.instruments import Hook
from copyscope.record.measured import Measured

# States of a hook: it can be attached, or could not be.
WORKS = ("available", "attached")

ABSENT = ("missing", "refused")


def failed_hooks(raw: Measured) -> list[Hook]:
    """Hooks that did not attach and that an instrument of this run cannot do without.

    A run of the sampled tier does without function hooks; its `tier_reason` says why.
    """
    exact = raw.run.tier == "exact"
    return [hook for hook in absent(raw.hooks) if exact or hook.instrument != "functions"]


def absent(hooks: Iterable[Hook]) -> list[Hook]:
    """Hooks that their instrument cannot do without, and that are not there."""
    return [hook for hook in hooks if hook.required and hook.state in ABSENT]


def hooks_of(hooks: Iterable[Hook], side: str) -> list[Hook]:
    """Those of the machine that a side ran on."""
    return [hook for hook in hooks if hook.side in (None, side)]


def find(hooks: Iterable[Hook], name: str) -> Hook | None:
    """The hook of this name."""
    return next((hook for hook in hooks if hook.id == name), None)


def why_absent(hook: Hook) -> str:
    """What became of it, and why."""
    return f"{hook.state}: {hook.reason or 'no reason given'}"


def why_not(instruments: Iterable[str], hooks: Iterable[Hook | dict[str, Any]]) -> str | None:
    """The first hook of these instruments that they cannot do without and that is not there; None: all are.

    The hooks of a record, or as the collector said them. What function hooks need is choose_tier()'s.
    """
    wanted = set(instruments) - {"functions"}
    said = absent(convert(list(hooks), list[Hook]))
    hook = next((hook for hook in said if hook.instrument in wanted), None)
    return None if hook is None else f"{hook.symbol}: {why_absent(hook)}"
