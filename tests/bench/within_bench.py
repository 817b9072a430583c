"""What a watch costs, seen within one load: every run has the time before, during and after it.

BENCH=watch compares loads that lie seconds apart, in which the host of a virtual machine changes more than
watching does. Here the client says when each request was answered (timeline.c), and the record when which
segment was: the whole watch against the time around it, in which nothing is attached; and what it lost in
each kind of phase against the segments beside it in which no hook is at a call. Two thirds of a watch are
`ledger` segments: what these cost is measured in a second watch, of many short segments (short_blocks.py).
"""

import contextlib
import json
import math
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import timeline
from conclusions import goal_of, reached
from copyscope import paths
from copyscope.stats import student
from samples import BLOCKS
from watch_bench import (
    END_S,
    FILE_BYTES,
    LOAD_S,
    SEARCHED,
    SENDS_BYTES,
    WATCH,
    answerer,
    nginx,
    waiting_sender,
)

CLIENT = paths.OUTPUT / "tests" / "timeline"
# Loading, the time before and after, and what the machine may be late.
AROUND_S = 7.0
SETTLE_S = 0.7
# What was received is in the file by then.
WRITTEN_S = 0.3
SHORT = [sys.executable, "-I", str(Path(__file__).with_name("short_blocks.py"))]


@dataclass(frozen=True)
class Served:
    """A program that serves a client, and how that one is started for a run: the file gets its events."""

    name: str
    size_bytes: int
    pid: int
    client: Callable[[Path], "contextlib.AbstractContextManager[Callable[[], timeline.Events]]"]


@contextlib.contextmanager
def asking(kind: str, cpu: str, port: str, file: Path) -> Iterator[Callable[[], timeline.Events]]:
    """A client that ends by itself after the watch; its events are there when it has."""
    argv = ["taskset", "-c", cpu, str(CLIENT), kind, port, str(LOAD_S + AROUND_S), str(file)]
    with subprocess.Popen(argv) as client:

        def events() -> timeline.Events:
            if client.wait(END_S + AROUND_S):
                raise SystemExit(f"{' '.join(argv)}: status {client.returncode}")
            return timeline.read(file)

        try:
            yield events
        finally:
            client.kill()


@contextlib.contextmanager
def sending(size_bytes: int, cpus: list[str]) -> Iterator[Served]:
    """A sender and its receiver, which both go on from run to run."""
    with contextlib.ExitStack() as exit_:
        child, port = exit_.enter_context(waiting_sender(size_bytes, cpus[0]))
        file = Path(exit_.enter_context(tempfile.TemporaryDirectory())) / "events"
        argv = ["taskset", "-c", cpus[1], str(CLIENT), "receive", port, "1e6", str(file)]
        receiver = exit_.enter_context(subprocess.Popen(argv))
        exit_.callback(receiver.kill)
        child.expect("connected")
        child.ask("go", "going")

        @contextlib.contextmanager
        def client(_: Path) -> Iterator[Callable[[], timeline.Events]]:
            def events() -> timeline.Events:
                time.sleep(WRITTEN_S)
                return timeline.read(file)

            yield events

        yield Served("sender", size_bytes, child.pid, client)


@contextlib.contextmanager
def serving(kind: str, cpus: list[str]) -> Iterator[Served]:
    """nginx or the answerer of one byte; a client for each run."""
    with contextlib.ExitStack() as exit_:
        if kind == "http":
            pid, page = exit_.enter_context(nginx(cpus[0]))
            name, size_bytes, port = "http", FILE_BYTES, page.split(":")[2].partition("/")[0]
        else:
            pid, port = exit_.enter_context(answerer(cpus[0]))
            name, size_bytes = "request-response", 1
        yield Served(name, size_bytes, pid, lambda file: asking(kind, cpus[1], port, file))


def run(served: Served, scratch: Path) -> dict[str, float]:
    """Two watches, the default one and one of short segments, and what the client saw of them."""
    seen, when, valid = watch(served, scratch, WATCH)
    found = measured(seen, when)
    in_short, short, short_valid = watch(served, scratch, SHORT)
    return found | in_parts(found, in_short, short) | {"valid": float(valid and short_valid)}


def watch(
    served: Served, scratch: Path, command: Sequence[str]
) -> tuple[timeline.Events, timeline.Phases, bool]:
    """What the client saw of a watch, when which segment of it was, and whether its record is valid."""
    record = scratch / "record.json"
    argv = [*command, "--pid", str(served.pid), "--duration", f"{LOAD_S:g}", "--json", str(record)]
    with served.client(scratch / "events") as events:
        time.sleep(SETTLE_S)
        done = subprocess.run(argv, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, check=False)
        if not record.exists():
            raise SystemExit(f"{' '.join(argv)}: status {done.returncode}: {done.stderr.strip()}")
        seen = events()
    made = json.loads(record.read_text(encoding="utf-8"))
    record.unlink()
    if not made["verdict"]["valid"]:
        print(f"within: {served.name}: {'; '.join(made['verdict']['reasons'])}", file=sys.stderr)
    return seen, timeline.phases(made["run"]["segments"]), made["verdict"]["valid"]


def measured(seen: timeline.Events, when: timeline.Phases) -> dict[str, float]:
    """Ratios, and of the whole time what `calls` segments and changes took away (as ratio to one).

    Raises ValueError where the client has not seen all of it: that would look like a loss.
    """
    (_, ended_ns), late_ns = when.alone[-1], 10_000_000
    if not len(seen) or seen["ended_ns"][0] > when.alone[0][0] or seen["ended_ns"][-1] < ended_ns - late_ns:
        raise ValueError("the client's events do not reach from before the watch to after it")
    whole_s = timeline.length_s(when.whole)
    found = {
        "kept": timeline.rate(seen, when.whole) / timeline.rate(seen, when.alone),
        "ledger_share": timeline.length_s(when.ledger) / whole_s,
        "lost_calls": timeline.lost(seen, when.calls, when.unprobed) / whole_s,
        "lost_changes": timeline.lost(seen, when.changes, when.unprobed) / whole_s,
    }
    if seen["took_ns"].any():
        found["p99_us"] = timeline.p99_us(seen, when.alone)
        whole_us = timeline.p99_us(seen, when.whole)
        found["p99"] = whole_us / found["p99_us"]
        # Where nothing is counted or changed.
        found["p99_calls_changes"] = whole_us / timeline.p99_us(seen, [*when.unprobed, *when.ledger])
    return found


def in_parts(found: dict[str, float], seen: timeline.Events, when: timeline.Phases) -> dict[str, float]:
    """What a default watch keeps of the pace in `unprobed` segments, as the sum of its parts.

    `found`: what measured() made of one; `seen`, `when`: of a watch of short segments.
    """
    ledger = fmean(timeline.beside(seen, when.ledger, when.unprobed))
    slower = found["ledger_share"] * (1 - ledger)
    parts = {"ledger": ledger, "kept_parts": 1 - slower - found["lost_calls"] - found["lost_changes"]}
    if seen["took_ns"].any():
        both_us = timeline.p99_us(seen, [*when.unprobed, *when.ledger])
        parts["p99_ledger"] = both_us / timeline.p99_us(seen, when.unprobed)
        parts["p99_parts"] = found["p99_calls_changes"] * parts["p99_ledger"]
    return parts


def rows(seed: int, cpus: list[str]) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """Each program, all its runs; the runs of all in turns would start each program anew."""
    if shutil.which("nginx", path=SEARCHED) is None:
        raise SystemExit("nginx: missing: sudo tools/deps.sh programs")
    places = {"a CPU each": cpus, "one CPU of two": [cpus[0], cpus[0]]}
    wanted = [(where, what) for where in places for what in (*SENDS_BYTES, "http", "ask")]
    random.Random(seed).shuffle(wanted)
    for where, what in wanted:
        on = places[where]
        with (
            sending(what, on) if isinstance(what, int) else serving(what, on) as served,
            tempfile.TemporaryDirectory() as scratch,
        ):
            runs = [run(served, Path(scratch)) for _ in range(BLOCKS)]
        yield [], {"program": served.name, "size_bytes": served.size_bytes, "placement": where, "runs": runs}


def mean(values: Sequence[float], *, ratios: bool) -> dict[str, float]:
    """The mean and its 95 % interval (Student); of ratios the geometric one."""
    some = [math.log(value) for value in values] if ratios else list(values)
    half = student(0.95, len(some) - 1) * stdev(some) / math.sqrt(len(some))
    centre = fmean(some)
    ends = {"ratio": centre, "low": centre - half, "high": centre + half}
    return {key: math.exp(value) for key, value in ends.items()} if ratios else ends


def lines(raw: list[dict[str, Any]]) -> list[str]:
    """The section of results/bench/README.md."""
    text = [
        "As `watch`, but within each load: its client says when each request was answered (of a sender: what "
        "came in each millisecond), and the record when which segment was. `around`: the pace, or p99, from "
        "the first segment to the last over that in the 1.2 s before and after the watch, when nothing is "
        "attached. `parts`: over that in `unprobed` segments, in which no hook is at a call or a packet, as "
        "the sum of the parts beside it, each against its own neighbours: `ledger` is the pace in such "
        "segments, with their bursts of samples, from a second watch of short ones; `calls` and the changes "
        "between segments have a part of the whole time that they took away. p99 is that of the requests "
        "that were made; `parts` has of the short watch all `ledger` and `unprobed` segments against all "
        "`unprobed` ones.",
        "",
        "| program | size | where | kept, around | goal | reached | kept, parts | reached | in `ledger` "
        "| lost in `calls` | in changes | p99, around | goal | reached | p99, parts | reached |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for item in sorted(raw, key=lambda one: (one["placement"], one["program"] != "sender", one["program"])):
        named = [item["program"], f"{item['size_bytes']:,} B", item["placement"]]
        text.append(_row(named, item["runs"], item["size_bytes"]))
    text.append(_row(["all", "", ""], [run_ for item in raw for run_ in item["runs"]], None))
    text += ["", *(line for item in raw if (line := _invalid(item)))]
    return text


def _invalid(item: dict[str, Any]) -> str:
    """What the figures of a row have in them; nothing where every watch was valid."""
    count = sum(not run_["valid"] for run_ in item["runs"])
    name = f"{item['program']} of {item['size_bytes']:,} B, {item['placement']}"
    return (
        f"- {name}: of {len(item['runs'])} pairs of watches {count} had one that was not valid"
        if count
        else ""
    )


def _row(named: list[str], runs: Sequence[dict[str, float]], size_bytes: int | None) -> str:
    def of(key: str) -> list[float]:
        return [run_[key] for run_ in runs if key in run_]

    cells = [*named, *_judged(of("kept"), "gbps", size_bytes)]
    cells += _judged(of("kept_parts"), "gbps", size_bytes)[::2]
    cells += [_ratio(of("ledger")), _percent(of("lost_calls")), _percent(of("lost_changes"))]
    if of("p99"):
        cells += _judged(of("p99"), "p99_us", None) + _judged(of("p99_parts"), "p99_us", None)[::2]
    return f"| {' | '.join(cells + [''] * (16 - len(cells)))} |"


def _judged(values: Sequence[float], quantity: str, size_bytes: int | None) -> list[str]:
    made = {**mean(values, ratios=True), "quantity": quantity, "factors": {"size_bytes": size_bytes}}
    goal = goal_of("watch", made)
    return [_ratio(values), f"{goal:g}", str(reached(made, goal))]


def _ratio(values: Sequence[float]) -> str:
    made = mean(values, ratios=True)
    return f"{made['ratio']:.3f} ({made['low']:.3f} to {made['high']:.3f})"


def _percent(values: Sequence[float]) -> str:
    made = mean(values, ratios=False)
    return f"{100 * made['ratio']:.2f} % ({100 * made['low']:.2f} to {100 * made['high']:.2f})"
