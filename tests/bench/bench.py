# SPDX-License-Identifier: GPL-2.0-only
"""Compare copyscope with other tools in one run, as paired ratios: bench.py [--seed N] [NAME...], or --table.

Each benchmark is a module with rows(seed, cpus), which yields comparisons and raw samples. Results go to
results/bench/NAME.json, from which results/bench/README.md is made; --table only makes that page. Each run
has another seed than the run before it. It needs root and an idle machine.
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
sys.path += [str(Path(__file__).parent), str(ROOT / "tests" / "crosscheck")]

from bench_table import document  # noqa: E402
from copyscope.base.errors import RunError, UsageError  # noqa: E402
from copyscope.machine.fingerprint import parse_version  # noqa: E402
from copyscope.machine.processors import read_cpu_model, read_hypervisor  # noqa: E402
from copyscope.run.build import start_git  # noqa: E402

# Duration of each benchmark with ten blocks (`used_s` of its result).
PLANNED_S = {
    "traffic": 185,
    "uring": 60,
    "observer": 215,
    "watch": 800,
    "sends": 780,
    "own": 60,
    "promise": 1500,
}
NAMES = tuple(PLANNED_S)
RESULTS = ROOT / "results" / "bench"
SEED = 20261120
PEERS = ("perf", "bpftrace", "iperf3", "wrk")


def main(argv: list[str]) -> int:
    """Return 0, 1 if a benchmark failed (the others are finished), 2 for wrong usage, 130 if interrupted."""
    parser = argparse.ArgumentParser(prog="bench.py", description="make bench: see tests/bench/bench.py.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of {', '.join(NAMES)}; default all")
    parser.add_argument("--table", action="store_true", help="only write the table from the results")
    parser.add_argument(
        "--seed", type=int, help="seed of all random orders; default: that of the previous run plus 1"
    )
    options = parser.parse_args(argv)
    unknown = [name for name in options.names if name not in NAMES]
    if unknown:
        print(f"bench: {unknown[0]}: unknown benchmark; choose {', '.join(NAMES)}", file=sys.stderr)
        return 2
    if options.table:
        return write_document()
    if os.geteuid() != 0:
        print("bench: needs root: sudo make bench", file=sys.stderr)
        return 1
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        print("bench: needs two CPUs, one for the sender and one for the receiver", file=sys.stderr)
        return 1
    names = options.names or NAMES
    planned = ", ".join(f"{name} {PLANNED_S[name]} s" for name in names)
    minutes = sum(PLANNED_S[name] for name in names) / 60
    print(f"bench: about {minutes:.0f} minutes: {planned}", file=sys.stderr)
    failed = False
    try:
        for name in names:
            seed = next_seed(name) if options.seed is None else options.seed
            failed |= not measure(name, seed, [str(cpu) for cpu in cpus[:2]])
    except KeyboardInterrupt:
        print("\nbench: interrupted: finished benchmarks are kept", file=sys.stderr)
        write_document()
        return 130
    write_document()
    print((RESULTS / "README.md").read_text(encoding="utf-8"))
    return int(failed)


def peers() -> dict[str, str | None]:
    """Return the versions of the tools that copyscope is compared with (None: not installed)."""
    versions: dict[str, str | None] = {}
    for name in PEERS:
        try:
            done = subprocess.run(
                [name, "--version"], capture_output=True, text=True, check=False, timeout=10
            )
        except OSError:
            versions[name] = None
        else:
            versions[name] = parse_version(done.stdout or done.stderr)
    return versions


def next_seed(name: str) -> int:
    """Return another seed than that of the previous run, so that effects of one order are not found twice."""
    path = RESULTS / f"{name}.json"
    return int(json.loads(path.read_text(encoding="utf-8"))["seed"]) + 1 if path.exists() else SEED


def measure(name: str, seed: int, cpus: list[str]) -> bool:
    """Run one benchmark. Return False, with the reason on stderr, if it could not be finished."""
    comparisons, raw = [], []
    started = datetime.now(UTC).isoformat(timespec="seconds")
    began_s = time.monotonic()

    def say(message: str) -> None:
        print(f"{name}: {message}: {time.monotonic() - began_s:.0f} s", file=sys.stderr)

    say(f"seed {seed}, about {PLANNED_S[name]} s")
    try:
        for new_comparisons, samples in importlib.import_module(f"{name}_bench").rows(seed, cpus):
            comparisons += new_comparisons
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
    """Return the measured commit, and whether it has changes; None if this tree is not a clone."""
    revision = start_git(ROOT, "rev-parse", "--short", "HEAD")()
    # Results of earlier benchmarks, and pages made of them, do not affect the measurement.
    generated = (":!results", ":!README.md", ":!docs")
    changed = start_git(ROOT, "status", "--porcelain", "--untracked-files=no", "--", ".", *generated)()
    return f"{revision} and changes" if revision and changed else revision


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
