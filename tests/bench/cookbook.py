# SPDX-License-Identifier: GPL-2.0-only
"""Run every script of the bpftrace cookbook, and write docs/4-cookbook.md from the results.

    cookbook.py measure [NAME...]       run the named scripts, or all that can run on this kernel (root): JSON
    cookbook.py write PAGE RESULTS.json...  write the scripts' part of the page; the first file that has an
                                        answer of a script gives it

The cost of a script is the goodput with it over the goodput without it, for one_copy sends of 64 KiB over lo:
the median of PAIRS alternating runs of each.
"""

import json
import os
import platform
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests" / name) for name in ("crosscheck", "live", "pages")]

import sentences  # noqa: E402
from copyscope.base.stats import ratio_of  # noqa: E402
from peer import IN_TRACEFS  # noqa: E402
from test_bpftrace import COOKBOOK, EXCHANGE, RECIPES, missing_from_tracefs  # noqa: E402

PAIRS = int(os.environ.get("COPYSCOPE_PAIRS", "7"))
SECONDS = "1s"
OUTPUT_LINES_MIN, OUTPUT_LINES_MAX = 4, 8
HEADER = re.compile(r"/\*\n \* \S+ - (?P<question>.*?)\n \*\n(?P<needs>.*?)\n \*/", re.DOTALL)
# Generated part of the page. The rest is written by hand.
BLOCK = re.compile(r"(<!-- cookbook -->\n).*(<!-- end -->)", re.DOTALL)
INTRODUCTION = """\
Each output is from 500 zero-copy sends of 64 KiB over lo, by {versions}. (`copy_stacks` is from
40,000 one_copy sends.) Empty buckets are left out. *Cost* is goodput with the script divided by
goodput without it. It was measured with one_copy sends of 64 KiB over lo. The figure is the median
of pairs of runs, with its 95 % interval.
"""
# Rows of processes other than our traffic, which the page leaves out.
OTHERS = re.compile(r"^@\w+\[(?!traffic|lo[,\]]|\d+|$)[^\n]*: ?\d*$")
# Row of a histogram without an entry.
EMPTY_BUCKET = re.compile(r"^\[[^|]*[])] +0 \|")


def traffic(impl: str, length: str) -> str:
    return f"{sys.executable} {EXCHANGE} {impl} {length} 65536"


def run(argv: list[str]) -> str:
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(argv)}: status {done.returncode}: {done.stderr}")
    return done.stdout


def goodput(output: str) -> float:
    return float(re.search(r"^goodput: ([\d.]+) Gb/s$", output, re.MULTILINE)[1])  # type: ignore[index]


def measure(names: Sequence[str]) -> dict[str, Any]:
    """Return answer and cost of these scripts on this kernel; without names, of every script that can run."""
    scripts: dict[str, Any] = {}
    for name, recipe in sorted(RECIPES.items()):
        if (names and name not in names) or missing_from_tracefs(recipe.needs):
            continue
        script = [str(COOKBOOK / f"{name}.bt")]
        print(name, file=sys.stderr)
        output = run([*IN_TRACEFS, "bpftrace", "-c", traffic(recipe.impl, str(recipe.messages)), *script])
        pairs = [
            (
                goodput(run([*IN_TRACEFS, "bpftrace", "-c", traffic("one_copy", SECONDS), *script])),
                goodput(run(traffic("one_copy", SECONDS).split())),
            )
            for _ in range(PAIRS)
        ]
        cost = ratio_of(pairs)
        scripts[name] = {
            "kernel": platform.release(),
            "output": output,
            "pairs_gbps": pairs,
            "cost": {"ratio": cost.value, "low": cost.low, "high": cost.high},
        }
    version = run(["bpftrace", "--version"]).strip()
    return {
        "kernel": platform.release(),
        "hypervisor": os.environ.get("COPYSCOPE_EMULATED"),
        "bpftrace": version,
        "scripts": scripts,
    }


def shown_lines(output: str) -> Iterator[str]:
    """Yield the last lines, from the beginning of an entry on, without empty buckets of histograms."""
    lines = [line for line in output.splitlines() if line and not line.startswith(("Attaching", "goodput"))]
    lines = [line.rstrip() for line in lines if not OTHERS.match(line) and not EMPTY_BUCKET.match(line)]
    # bpftrace prints the largest entries last.
    first = max(0, len(lines) - OUTPUT_LINES_MIN)
    while first and not lines[first].startswith("@"):
        first -= 1
    if first:
        yield f"[{first} lines before]"
    yield from lines[first : first + OUTPUT_LINES_MAX]
    if len(lines) > first + OUTPUT_LINES_MAX:
        yield "..."


def section(name: str, results: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the parts of a script's section, from the first results that have an answer of it."""
    text = (COOKBOOK / f"{name}.bt").read_text(encoding="utf-8")
    header = HEADER.search(text)
    assert header is not None, f"{name}.bt: the first comment is not question and needs"
    needs = " ".join(line.removeprefix(" *").strip() for line in header["needs"].splitlines())
    yield f"### {name}.bt: {' '.join(header['question'].replace(' * ', '').split())}\n"
    yield sentences.wrap(needs) + "\n"
    for result in results:
        answer = result["scripts"].get(name)
        if answer is None:
            continue
        yield "```\n" + "\n".join(shown_lines(answer["output"])) + "\n```\n"
        cost = "was not measured ({hypervisor})".format_map(result)
        if not result["hypervisor"]:
            cost = "is {ratio:.3f} ({low:.3f} to {high:.3f})".format_map(answer["cost"])
        yield f"On Linux {answer.get('kernel', result['kernel'])} the cost {cost}.\n"
        return


def written(files: list[str]) -> str:
    """Return the section of every script, with its answer and its cost."""
    results = [json.loads(Path(name).read_text(encoding="utf-8")) for name in files]
    parts = [INTRODUCTION.format(versions=", ".join(sorted({result["bpftrace"] for result in results})))]
    for name in sorted(RECIPES):
        parts += section(name, results)
    return "\n".join(parts)


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        json.dump(measure(sys.argv[2:]), sys.stdout, indent=1)
        print()
    elif sys.argv[1:2] == ["write"] and len(sys.argv) > 3:
        page = Path(sys.argv[2])
        sections = written(sys.argv[3:])
        page.write_text(BLOCK.sub(lambda block: block[1] + sections + block[2], page.read_text()))
    else:
        raise SystemExit(__doc__)
