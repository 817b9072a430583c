"""make bench: ours and theirs in one run, as paired ratios. (root) bench.py [--seed N] [NAME...], or --table

Each benchmark is a module with rows(seed, cpus): comparisons and raw samples. Results go to
results/bench/NAME.json, and results/bench/README.md is made from all of these: --table makes it again and
measures nothing. Each run has another seed than the one before it; nothing else should run.
"""

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.append(str(Path(__file__).parent))

from bench_table import document  # noqa: E402
from copyscope.errors import RunError, UsageError  # noqa: E402
from copyscope.machine.cpu import read_cpu_model, read_hypervisor  # noqa: E402
from copyscope.machine.tool_versions import parse_version  # noqa: E402
from copyscope.run.build import ask_git  # noqa: E402

# What each takes here with ten blocks (`used_s` of its result).
PLANNED_S = {"traffic": 185, "uring": 60, "observer": 215, "watch": 800, "own": 60}
NAMES = tuple(PLANNED_S)
RESULTS = ROOT / "results" / "bench"
SEED = 20261120
PEERS = ("perf", "bpftrace", "iperf3", "wrk")


def main(argv: list[str]) -> int:
    """Exit status 0, 1 when a benchmark failed (the others were made), 2 usage, 130 interrupted."""
    parser = argparse.ArgumentParser(prog="bench.py", description="make bench: see tests/bench/bench.py.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(NAMES)}; default all")
    parser.add_argument("--table", action="store_true", help="only the table again, from the results")
    parser.add_argument(
        "--seed", type=int, help="of every order; default: one more than that of the run before"
    )
    given = parser.parse_args(argv)
    unknown = [name for name in given.names if name not in NAMES]
    if unknown:
        print(f"bench: {unknown[0]}: not a benchmark: one of {', '.join(NAMES)}", file=sys.stderr)
        return 2
    if given.table:
        return write_document()
    if os.geteuid() != 0:
        print("bench: needs root: sudo make bench", file=sys.stderr)
        return 1
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        print("bench: needs two processors, one for each side", file=sys.stderr)
        return 1
    names = given.names or NAMES
    planned = ", ".join(f"{name} {PLANNED_S[name]} s" for name in names)
    minutes = sum(PLANNED_S[name] for name in names) / 60
    print(f"bench: about {minutes:.0f} minutes: {planned}", file=sys.stderr)
    failed = False
    try:
        for name in names:
            seed = next_seed(name) if given.seed is None else given.seed
            failed |= not measure(name, seed, [str(cpu) for cpu in cpus[:2]])
    except KeyboardInterrupt:
        print("\nbench: interrupted: what was finished is kept", file=sys.stderr)
        write_document()
        return 130
    write_document()
    print((RESULTS / "README.md").read_text(encoding="utf-8"))
    return int(failed)


def peers() -> dict[str, str | None]:
    """The versions of what ours is compared with; None: not installed."""
    found: dict[str, str | None] = {}
    for name in PEERS:
        try:
            done = subprocess.run(
                [name, "--version"], capture_output=True, text=True, check=False, timeout=10
            )
        except OSError:
            found[name] = None
        else:
            found[name] = parse_version(done.stdout or done.stderr)
    return found


def next_seed(name: str) -> int:
    """Another order than that of the run before: what is due to one order is not to be found twice."""
    path = RESULTS / f"{name}.json"
    return int(json.loads(path.read_text(encoding="utf-8"))["seed"]) + 1 if path.exists() else SEED


def measure(name: str, seed: int, cpus: list[str]) -> bool:
    """One benchmark; False, with its reason on stderr, where it could not be finished: the others go on."""
    comparisons, raw = [], []
    started = datetime.now(UTC).isoformat(timespec="seconds")
    began_s = time.monotonic()

    def say(what: str) -> None:
        print(f"{name}: {what}: {time.monotonic() - began_s:.0f} s", file=sys.stderr)

    say(f"seed {seed}, about {PLANNED_S[name]} s")
    try:
        for made, samples in importlib.import_module(f"{name}_bench").rows(seed, cpus):
            comparisons += made
            raw.append(samples)
            say(samples_name(samples))
    except (SystemExit, RunError, UsageError, OSError, ValueError, subprocess.SubprocessError) as error:
        say(f"FAILED: {error}")
        return False
    say("done")
    result = {
        "machine": machine(),
        "peers": peers(),
        "started": started,
        "git": commit(),
        "used_s": round(time.monotonic() - began_s, 1),
        "seed": seed,
        "comparisons": comparisons,
        "raw": raw,
    }
    (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return True


def write_document() -> int:
    (RESULTS / "README.md").write_text(document(RESULTS, NAMES), encoding="utf-8")
    return 0


def samples_name(samples: dict[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in samples.items() if isinstance(value, (int, str)))


def machine() -> dict[str, Any]:
    return {
        "kernel": platform.release(),
        "cpu_model": read_cpu_model(),
        "cpus": os.cpu_count(),
        "hypervisor": read_hypervisor(),
    }


def commit() -> str | None:
    """The commit that was measured, and whether there is more than it; None where this tree is no clone."""
    found = ask_git(ROOT, "rev-parse", "--short", "HEAD")()
    # the results of the benchmarks before this one, and what is made of them, are not what is measured
    made = (":!results", ":!README.md", ":!docs")
    changed = ask_git(ROOT, "status", "--porcelain", "--untracked-files=no", "--", ".", *made)()
    return f"{found} and changes" if found and changed else found


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
