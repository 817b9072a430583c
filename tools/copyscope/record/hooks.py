"""What became of the hooks that instruments need, and why. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

# States of a hook: it can be attached, or could not be.
WORKS = ("available", "attached")

ABSENT = ("missing", "refused")


def failed_hooks(record: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Hooks that did not attach and that an instrument of this run cannot do without.

    A run of the sampled tier does without function hooks; its `tier_reason` says why.
    """
    exact = record["run"].get("tier") == "exact"
    return [hook for hook in absent(record["hooks"]) if exact or hook["instrument"] != "functions"]


def absent(hooks: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Hooks that their instrument cannot do without, and that are not there."""
    return [hook for hook in hooks if hook["required"] and hook["state"] in ABSENT]


def why_absent(hook: Mapping[str, Any]) -> str:
    """What became of it, and why."""
    return f"{hook['state']}: {hook['reason'] or 'no reason given'}"


def why_not(instruments: Iterable[str], hooks: Iterable[Mapping[str, Any]]) -> str | None:
    """The first hook of these instruments that they cannot do without and that is not there; None: all are.

    What function hooks need is choose_tier()'s.
    """
    wanted = set(instruments) - {"functions"}
    hook = next((hook for hook in absent(hooks) if hook["instrument"] in wanted), None)
    return None if hook is None else f"{hook['symbol']}: {why_absent(hook)}"
