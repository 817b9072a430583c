# SPDX-License-Identifier: GPL-2.0-only
"""Calls of hooked functions as the exact tier and as the simulator count them, for the same messages.

Pure.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from copyscope.base import paths
from copyscope.run.simulate.counted_stacks import CountedStack, name_stack

HOOKS = paths.ROOT / "bpf" / "hooks.h"
# Kinds without calls in the exact tier: a MARK ends a bracket, a PART belongs to the row around it.
UNCOUNTED = ("MARK", "PART")
# Categories of functions that only delimit a search for copies, so their calls are not counted.
DELIMITING = ("SEND", "RECEIVE", "NONE")
LOOPS = ("handle_softirqs", "__do_softirq")
SIDES = ("sender", "receiver")

Key = tuple[str, str, str]  # side, context, category


def categories(hooks: str = "") -> dict[str, str]:
    """Return hook -> category for hooks with counted calls.

    `hooks`: the text of bpf/hooks.h, by default the file's.
    """
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
    """Return the calls that the exact tier counted between two reports."""
    calls: Counter[Key] = Counter()
    for sign, report in ((1, after), (-1, before)):
        for cell in report["functions"]["cells"]:
            if cell["side"] in SIDES:
                calls[cell["side"], cell["context"], cell["category"]] += sign * cell["calls"]
    return +calls


def modelled(
    stacks: Iterable[CountedStack], names: dict[str, str], hooks: Iterable[Mapping[str, Any]]
) -> dict[Key, Counter[str]]:
    """Return the entered functions of each row with their number of calls, by the simulator's stacks."""
    category_by_hook = categories()
    attached = {
        hook["symbol"]: category_by_hook[hook["id"]]
        for hook in hooks
        if hook["instrument"] == "functions"
        and hook["state"] == "attached"
        and hook["id"] in category_by_hook
    }
    calls_by_row: dict[Key, Counter[str]] = {}
    for stack in stacks:
        if stack.side not in SIDES or not stack.counts["calls"]:
            continue
        path = name_stack(stack.frames, names)
        category = attached.get(path[0]) if path else None
        if category is not None:
            context = "softirq" if any(name in LOOPS for name in path) else "process"
            calls_by_row.setdefault((stack.side, context, category), Counter())[path[0]] += stack.counts[
                "calls"
            ]
    return calls_by_row
