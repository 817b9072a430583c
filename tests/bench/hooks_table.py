"""The cost of hooks as a table: one line for each hook and kernel."""

from typing import Any

NOTE = """\
ns of CPU time per event with the program attached, less the same work without it; median of rounds of a few
pairs, spread over the whole run, with 95 % intervals. A guest is emulated: only the ratios of its figures
mean anything (the last column, to tp_btf of the same kernel).
"""


def costs(raw: list[dict[str, Any]]) -> list[str]:
    """The section of results/bench/README.md; nothing where nothing of the kind was measured."""
    lines = table(raw)
    return [NOTE, *lines, *refused(raw)] if lines else []


def table(raw: list[dict[str, Any]]) -> list[str]:
    lines = []
    for item in raw:
        hooks = item.get("hooks", [])
        base = next(
            (one["median_ns"] for one in hooks if "median_ns" in one and one["kind"] == "tp_btf"), None
        )
        for one in hooks:
            if "failed" in one:
                continue
            lines.append(line(item, one, base))
    if not lines:
        return []
    return ["| kernel | program | on | ns per event | to tp_btf |", "|---|---|---|---|---|", *lines]


def line(item: dict[str, Any], one: dict[str, Any], base: float | None) -> str:
    kernel = item["kernel"] + (" (guest)" if item["where"] == "guest" else "")
    counted = f", {one['counters']} events" if one.get("counters") else ""
    figure = f"{one['median_ns']:,.0f} ({one['low_ns']:,.0f} to {one['high_ns']:,.0f})"
    ratio = f"{one['median_ns'] / base:.2f}" if base else ""
    return f"| {kernel} | {one['what']}{counted} | {one['target']} | {figure} | {ratio} |"


def refused(raw: list[dict[str, Any]]) -> list[str]:
    """Who could not run, and why; the same reason once."""
    reasons: dict[tuple[str, str], list[str]] = {}
    for item in raw:
        for one in item.get("hooks", []):
            if "failed" in one:
                reasons.setdefault((item["kernel"], one["failed"]), []).append(one["what"])
    lines = [f"- {kernel}: {', '.join(whats)}: {reason}" for (kernel, reason), whats in reasons.items()]
    return ["", *lines] if lines else []
