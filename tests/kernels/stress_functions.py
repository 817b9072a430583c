"""Do self times and inclusive times stay equal, and what is lost, while programs of ours are preempted?

    modprobe -a veth; PYTHONPATH=tools .venv/bin/python3 -P -B tests/kernels/stress_functions.py --runs 20

Run it inside a guest (boot.sh), with one processor and with two (COPYSCOPE_GUEST_CPUS). Each run hooks a
stream over loopback anew, every call timed. What the calls spent in each function must add up to what the
calls took to the nanosecond: both are differences of the same readings. A line of JSON per run, one for all.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections import Counter
from contextlib import ExitStack
from typing import Any

from copyscope import paths
from copyscope.run.child import Child

WAIT_S = 30 * float(os.environ.get("COPYSCOPE_SLOW", "1"))


def run(options: argparse.Namespace) -> dict[str, Any]:
    """One stream, hooked for a while; what the collector reports of it."""
    with ExitStack() as stack:
        for _ in range(options.rivals):
            rival = subprocess.Popen(["sh", "-c", "while :; do :; done"])
            stack.callback(rival.wait)
            stack.callback(rival.kill)
        argv = [str(paths.TRAFFIC), "send", "--impl", options.impl, "--size", options.size]
        sender = Child("sender", [*argv, "--control", "--listen", "127.0.0.1"])
        stack.callback(sender.end)
        port = str(sender.expect("listening", WAIT_S)["port"])
        argv = [str(paths.TRAFFIC), "recv", "--control", "--connect", "127.0.0.1", "--port", port]
        receiver = Child("receiver", argv)
        stack.callback(receiver.end)
        for child in (receiver, sender):
            child.expect("connected", WAIT_S)
        argv = [options.collector, "--functions", "--attach", options.attach, "--functions-gate", "1"]
        collector = Child("collector", argv)
        stack.callback(collector.end)
        collector.expect("ready", WAIT_S)
        for side, pid in (("sender", sender.pid), ("receiver", receiver.pid)):
            collector.ask(f"target {side} {pid}", "target", WAIT_S)
        sender.ask("go", "going", WAIT_S)
        for _ in range(options.segments):
            collector.ask("open functions", "opened", WAIT_S)
            time.sleep(options.seconds)
            collector.ask("close", "closed", WAIT_S)
        return dict(collector.ask("report", "report", WAIT_S))


def judged(report: dict[str, Any]) -> dict[str, Any]:
    """Self times less inclusive time of each side, ns; calls in the functions; what was lost."""
    cells, found = report["functions"]["cells"], {}
    for root in report["functions"]["roots"]:
        own = sum(cell["self_ns"] for cell in cells if cell["side"] == root["side"])
        found[root["side"]] = {
            "roots": root["timed_calls"],
            "inclusive_ns": root["inclusive_ns"],
            "self_less_inclusive_ns": own - root["inclusive_ns"],
        }
    return {
        "calls": sum(cell["calls"] for cell in cells),
        "sides": found,
        "lost": {name: count for name, count in report["loss"].items() if isinstance(count, int) and count},
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runs", type=int, default=10)
    parser.add_argument("--segments", type=int, default=1, help="times that the hooks come and go in a run")
    parser.add_argument("--seconds", type=float, default=2.0, help="of each segment")
    parser.add_argument("--rivals", type=int, default=0, help="programs that want the processors, too")
    parser.add_argument("--impl", default="zero_copy")
    parser.add_argument("--size", default="40000")
    parser.add_argument("--attach", default="fentry")
    parser.add_argument("--collector", default=str(paths.COLLECTOR), help="another build, to compare with")
    options = parser.parse_args()
    unequal = broken = calls = roots = 0
    lost: Counter[str] = Counter()
    for _ in range(options.runs):
        one = judged(run(options))
        print(json.dumps(one), flush=True)
        sides = [one["sides"][side] for side in ("sender", "receiver")]
        unequal += any(side["self_less_inclusive_ns"] for side in sides)
        broken += any(abs(side["self_less_inclusive_ns"]) > 0.01 * side["inclusive_ns"] for side in sides)
        lost.update(one["lost"])
        calls += one["calls"]
        roots += sum(side["roots"] for side in sides)
    total = {
        "runs": options.runs,
        "unequal": unequal,
        "beyond_1_percent": broken,
        "calls": calls,
        "roots": roots,
    }
    print(json.dumps({**total, "lost": dict(lost.most_common()), "lost_in_all": lost.total()}))
    return 1 if unequal else 0


if __name__ == "__main__":
    sys.exit(main())
