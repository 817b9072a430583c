"""Runs every script of the bpftrace cookbook and writes docs/4-cookbook.md from what came out.

    cookbook.py measure [NAME...]       every script that can run on this kernel, or some (root), as JSON
    cookbook.py write PAGE RESULTS.json...  the scripts' part of the page; of each script the answer in the
                                        first file that has one

A script's cost is the goodput with it over the goodput without it, for one_copy sends of 64 KiB over lo:
the median of PAIRS runs of each, taken in turns.
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
sys.path.append(str(ROOT / "tests" / "live"))

from copyscope.crosscheck.peer import IN_TRACEFS  # noqa: E402
from copyscope.stats import ratio_of  # noqa: E402
from test_bpftrace import COOKBOOK, EXCHANGE, RECIPES, missing  # noqa: E402

PAIRS = int(os.environ.get("COPYSCOPE_PAIRS", "7"))
SECONDS = "1s"
OUTPUT_LINES_MIN = 8
HEADER = re.compile(r"/\*\n \* \S+ - (?P<question>.*?)\n \*\n(?P<needs>.*?)\n \*/", re.DOTALL)
# The part of the page that is made here; the rest is written by hand.
BLOCK = re.compile(r"(<!-- cookbook -->\n).*(<!-- end -->)", re.DOTALL)
INTRODUCTION = """\
The outputs are of 500 zero-copy sends of 64 KiB over lo (`copy_stacks`: 40,000 of one-copy). A cost is
goodput with the script over that without it, of one-copy sends of 64 KiB over lo: the median of pairs and
its 95 % interval. Live tests compare each script's answer with what was sent. Made by `make cookbook`.
"""
# Ours in the output: what other processes did is not the example's business.
OTHERS = re.compile(r"^@\w+\[(?!traffic|lo[,\]]|\d+|$)[^\n]*: ?\d*$")


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
    """Answer and cost of these scripts on this kernel; without names, of every script that can run."""
    scripts: dict[str, Any] = {}
    for name, recipe in sorted(RECIPES.items()):
        if (names and name not in names) or missing(recipe.needs):
            continue
        script = [str(COOKBOOK / f"{name}.bt"), *recipe.arguments]
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


def shown(output: str) -> Iterator[str]:
    lines = [line for line in output.splitlines() if line and not line.startswith(("Attaching", "goodput"))]
    lines = [line.rstrip() for line in lines if not OTHERS.match(line)]
    # bpftrace prints the largest last, and what is shown begins with a whole entry.
    first = max(0, len(lines) - OUTPUT_LINES_MIN)
    while first and not lines[first].startswith("@"):
        first -= 1
    if first:
        yield f"[{first} lines before]"
    yield from lines[first:]


def section(name: str, results: list[dict[str, Any]]) -> Iterator[str]:
    text = (COOKBOOK / f"{name}.bt").read_text(encoding="utf-8")
    header = HEADER.search(text)
    assert header is not None, f"{name}.bt: the first comment is not question and needs"
    needs = " ".join(line.removeprefix(" *").strip() for line in header["needs"].splitlines())
    yield f"### {name}.bt: {' '.join(header['question'].replace(' * ', '').split())}\n\n{needs}\n"
    for result in results:
        made = result["scripts"].get(name)
        if made is None:
            continue
        where = f"Linux {made.get('kernel', result['kernel'])}, {result['bpftrace']}"
        yield f"On {where}:\n\n```\n" + "\n".join(shown(made["output"])) + "\n```\n"
        if result["hypervisor"]:
            yield f"Cost: not measured ({result['hypervisor']}).\n"
        else:
            cost = made["cost"]
            yield f"Cost: {cost['ratio']:.3f} ({cost['low']:.3f} to {cost['high']:.3f}).\n"
        return


def written(files: list[str]) -> str:
    """The scripts, their answers and their cost."""
    results = [json.loads(Path(name).read_text(encoding="utf-8")) for name in files]
    parts = [INTRODUCTION]
    for name in sorted(RECIPES):
        parts += section(name, results)
    return "\n".join(parts)


if __name__ == "__main__":
    if sys.argv[1:2] == ["measure"]:
        json.dump(measure(sys.argv[2:]), sys.stdout, indent=1)
        print()
    elif sys.argv[1:2] == ["write"] and len(sys.argv) > 3:
        page = Path(sys.argv[2])
        made = written(sys.argv[3:])
        page.write_text(BLOCK.sub(lambda found: found[1] + made + found[2], page.read_text()))
    else:
        raise SystemExit(__doc__)
