# SPDX-License-Identifier: GPL-2.0-only
"""Tables of docs/reference/ways.md: results of `copyscope drill` on each kernel in results/kernels/ways."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

KEPT = Path(__file__).resolve().parents[2] / "results" / "kernels" / "ways"

PATHS = {
    "lo": "Over lo",
    "veth": "Over veth",
    "nics": "Over a network card (two emulated e1000 with a cable)",
    "tls": "Over lo with kTLS (TLS 1.3, AES-GCM-128, in software)",
}
PAGE = Path(__file__).resolve().parents[2] / "docs" / "reference" / "ways.md"
BEGIN = "<!-- Made by `make check-kernels` from results/kernels/ways/*.json; do not edit. -->\n"
END = "<!-- End of the part made by `make check-kernels`. -->\n"


def kept_ways(name: str) -> Path:
    """Return the path of a kernel's table, as `copyscope drill --json` writes it."""
    return KEPT / f"{name}.json"


def ways_page() -> str:
    """Return the page with new tables between BEGIN and END."""
    page = PAGE.read_text(encoding="utf-8")
    before, after = page[: page.index(BEGIN)], page[page.index(END) :]
    return before + BEGIN + kernel_tables() + after


def kernel_tables() -> str:
    """Return a table for each path."""
    tables = sorted((json.loads(path.read_text()) for path in KEPT.glob("*.json")), key=kernel_version)
    text = f"\nKernels: {', '.join(table['kernel'] for table in tables)}.\n"
    titles: dict[tuple[tuple[str, str, str], ...], str] = {}
    for path, title in PATHS.items():
        rows = grouped(
            [
                (row["way"], short_name(table), cell(row))
                for table in tables
                for row in table["ways"]
                if row["path"] == path
            ]
        )
        text += f"\n### {title}\n\n"
        if rows in titles:
            text += f"The same as {titles[rows].lower()}.\n"
            continue
        titles[rows] = title
        text += "| method | result | kernels |\n|---|---|---|\n"
        text += "".join(f"| {' | '.join(row)} |\n" for row in rows)
    return text + "\n"


def grouped(rows: Sequence[tuple[str, str, str]]) -> tuple[tuple[str, str, str], ...]:
    """Merge rows (method, kernel, result) into rows (methods, result, kernels)."""
    kernels: dict[tuple[str, str], list[str]] = {}
    for method, kernel, result in rows:
        kernels.setdefault((method, result), []).append(kernel)
    methods: dict[tuple[str, str], list[str]] = {}
    for (method, result), names in kernels.items():
        methods.setdefault((result, ", ".join(names)), []).append(method)
    return tuple(("; ".join(names), result, where) for (result, where), names in methods.items())


def kernel_version(table: dict[str, Any]) -> list[int]:
    """Return the numbers of a kernel's version, such as [6, 12, 107]."""
    return [int(part) for part in re.findall(r"\d+", table["kernel"].split("-")[0].split("+")[0])]


def short_name(table: dict[str, Any]) -> str:
    """Return the first two numbers of a kernel's version, such as `6.12`."""
    return ".".join(map(str, kernel_version(table)[:2]))


def cell(row: dict[str, Any]) -> str:
    """Return the result of one method in a few words, without times: guests are emulated."""
    if row["reason"] is not None:
        words: str = row["reason"]
        inner = words.removeprefix("the kernel does not do that on this socket (").rstrip(")")
        return f"refused: {re.split(', | [(]', inner)[0]}"
    notified = "" if row["notified"] is None else f"; notified: {row['notified']}"
    return f"{row['result']}{notified}"
