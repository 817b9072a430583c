"""make bench: ours and theirs in one run, as paired ratios. bench.py [NAME...] (root)

Each benchmark is a module with rows(seed, cpus): comparisons and raw samples. Results go to
results/bench/NAME.json, the table of all to results/bench/README.md. Seeded; nothing else should run.
"""

import importlib
import json
import os
import platform
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tools"), str(Path(__file__).parent)]

from bench_table import table  # noqa: E402
from copyscope.machine_cpu import read_cpu_model, read_hypervisor  # noqa: E402

NAMES = ("traffic", "observer", "hooks", "attach", "own", "precision")
RESULTS = ROOT / "results" / "bench"
SEED = 20261120


def main(names: list[str]) -> int:
    """Exit status 0; a peer that is missing or fails ends the benchmark with its name."""
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        print(f"bench: {unknown[0]}: not a benchmark: one of {', '.join(NAMES)}", file=sys.stderr)
        return 2
    if os.geteuid() != 0:
        print("bench: needs root: sudo make bench", file=sys.stderr)
        return 1
    cpus = sorted(os.sched_getaffinity(0))
    if len(cpus) < 2:
        print("bench: needs two processors, one for each side", file=sys.stderr)
        return 1
    RESULTS.mkdir(parents=True, exist_ok=True)
    for name in names or NAMES:
        began = time.monotonic()
        comparisons, raw = [], []
        for made, samples in importlib.import_module(f"{name}_bench").rows(SEED, [str(c) for c in cpus[:2]]):
            comparisons += [asdict(comparison) for comparison in made]
            raw.append(samples)
            print(f"{name}: {samples_name(samples)}: {time.monotonic() - began:.0f} s", file=sys.stderr)
        result = {"machine": machine(), "seed": SEED, "comparisons": comparisons, "raw": raw}
        (RESULTS / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    text = table([RESULTS / f"{name}.json" for name in NAMES])
    (RESULTS / "README.md").write_text(text, encoding="utf-8")
    print(text)
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
