"""Calls of hooked functions: by the exact tier, and by the simulator, of the same messages. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from copyscope import paths
from copyscope.simulate.output import Stack
from copyscope.simulate.symbols import frames

HOOKS = paths.ROOT / "bpf" / "hooks.h"
# A MARK ends a bracket and a PART belongs to the row around it: the exact tier has no calls of them.
UNCOUNTED = ("MARK", "PART")
# In these copies are looked for, and no call of them is counted.
DELIMITING = ("SEND", "RECEIVE", "NONE")
LOOPS = ("handle_softirqs", "__do_softirq")
SIDES = ("sender", "receiver")

Key = tuple[str, str, str]  # side, context, category


def categories(hooks: str = "") -> dict[str, str]:
    """Hook -> category, of those whose calls the exact tier counts (bpf/hooks.h)."""
    text = re.sub(r"\\\n\s*", "", hooks or HOOKS.read_text())
    rows = re.findall(
        r'FUNCTION\((\w+), .*?, ([A-Z_]+), ([A-Z_]+), [A-Z_]+, (?:REQUIRED|OPTIONAL|FALLBACK), [A-Z_]+, "',
        text,
    )
    return {
        name: category.lower()
        for name, category, kind in rows
        if kind not in UNCOUNTED and category not in DELIMITING
    }


def exact(before: Mapping[str, Any], after: Mapping[str, Any]) -> Counter[Key]:
    """What the exact tier counted between two reports."""
    found: Counter[Key] = Counter()
    for sign, report in ((1, after), (-1, before)):
        for cell in report["functions"]["cells"]:
            if cell["side"] in SIDES:
                found[cell["side"], cell["context"], cell["category"]] += sign * cell["calls"]
    return +found


def modelled(
    stacks: Iterable[Stack], names: dict[str, str], hooks: Iterable[Mapping[str, Any]]
) -> dict[Key, Counter[str]]:
    """Of each category the functions that were entered, and how often."""
    known = categories()
    attached = {
        hook["symbol"]: known[hook["id"]]
        for hook in hooks
        if hook["instrument"] == "functions" and hook["state"] == "attached" and hook["id"] in known
    }
    found: dict[Key, Counter[str]] = {}
    for stack in stacks:
        if stack.side not in SIDES or not stack.counts["calls"]:
            continue
        path = frames(stack.frames, names)
        category = attached.get(path[0]) if path else None
        if category is not None:
            context = "softirq" if any(name in LOOPS for name in path) else "process"
            found.setdefault((stack.side, context, category), Counter())[path[0]] += stack.counts["calls"]
    return found
