"""What asking many hosts costs here: fleet_cost.py sshd N [--ansible], or simulate N [--forks F] [--seed S].

    fleet_cost.py simulate 10000 --forks 100 --out DIR --within 400    until all have answered

`sshd`: N hosts that are an sshd in namespaces each (root; tests/live/far_hosts.py); their copyscope sleeps
SECONDS and prints a record, so that all else is the cost of asking. Both ends are this machine: CPU time is
of both. `simulate`: hosts that are a shell each, with latencies and failures drawn from a seed: what the
asking machine does without ssh. With --out it goes on where the last one was ended by --within: hosts with a
record are not asked again. One line of JSON comes out; docs/dev/notes.md quotes these.
"""

import argparse
import asyncio
import contextlib
import json
import os
import random
import resource
import shlex
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / place) for place in ("tools", "tests/pure", "tests/live")]

import far_hosts  # noqa: E402
from builders import raw_record  # noqa: E402
from copyscope.fleet import directory  # noqa: E402
from copyscope.fleet.answers import judge  # noqa: E402
from copyscope.fleet.by_ssh import Answer, Job, ask_all  # noqa: E402
from copyscope.ledger.derive import derive  # noqa: E402
from copyscope.places import Place  # noqa: E402
from copyscope.record import store  # noqa: E402

FACTS = json.dumps({"kernel": "6.12.1", "arch": "x86_64", "nics": ["mlx5_core"]})
# Of a hundred hosts; all others answer.
FAILING = {"unreachable": 3, "failed": 2, "not an answer": 1, "timed out": 1}
STATES = {"not an answer": "failed"}
TIMEOUT_S = 5.0


@dataclass(frozen=True)
class Pretended:
    """A host of the simulation: how long until it is there, how long it measures, how it ends."""

    connect_s: float
    run_s: float
    how: str
    record: Path

    def argv(self, command: Sequence[str], *, become: bool = False) -> list[str]:
        del command, become
        facts = f"echo {shlex.quote(FACTS)}"
        ends = {
            "unreachable": "exit 255",
            "failed": f"{facts}; exit 3",
            "not an answer": f"{facts}; echo '{{'",
            "timed out": f"{facts}; exec cat > /dev/null",
        }
        answers = f"{facts}; sleep {self.run_s:.3f}; exec cat {shlex.quote(str(self.record))}"
        return ["sh", "-c", f"sleep {self.connect_s:.3f}; {ends.get(self.how, answers)}"]


def drawn(hosts: int, seed: int, seconds: float, record: Path) -> dict[str, Pretended]:
    """Latencies are log-normal, their median 50 ms; the command takes `seconds` and up to a tenth more."""
    by = random.Random(seed)
    ways = [way for way, share in FAILING.items() for _ in range(share)]
    places = {}
    for number in range(hosts):
        way = by.randrange(100)
        connect_s = 0.05 * by.lognormvariate(0, 1)
        run_s = seconds * by.uniform(1, 1.1)
        how = ways[way] if way < len(ways) else "ok"
        places[f"h{number}"] = Pretended(min(connect_s, 2), run_s, how, record)
    return places


def simulate(
    out: Path, places: Mapping[str, Pretended], forks: int, within_s: float | None
) -> dict[str, Any]:
    """Those that have no record yet, until all were asked or the time is over; what is there then."""
    begun = directory.start(out, directory.Asked(("run",), False, "simulated"), list(places), again=False)
    rows = dict(begun.rows)
    left: dict[str, Place] = {name: place for name, place in places.items() if name not in rows}

    def ended(host: str, answer: Answer) -> None:
        rows[host] = directory.keep(out, begun.asked, judge(host, "run", answer))

    async def in_time() -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await ask_all(left, Job((), False, TIMEOUT_S), forks, lambda _: None, ended)

    cost = _Cost()
    asyncio.run(in_time())
    found = cost.found(max(len(rows) - len(begun.rows), 1))
    states = Counter(row.state for row in rows.values())
    files = sum(1 for _ in out.glob("host=*/date=*/*.json"))
    # Each row has its host, each record its row, and nothing else is there.
    assert files == states["ok"] and not list(out.rglob("*.part"))
    assert not Path(f"/proc/self/task/{os.getpid()}/children").read_text()
    wrong = [
        name for name, row in rows.items() if row.state != STATES.get(places[name].how, places[name].how)
    ]
    return {"hosts": len(places), "forks": forks, "asked_before": len(begun.rows), **found} | {
        "unasked": len(places) - len(rows),
        "drawn": dict(Counter(place.how for place in places.values())),
        "states": dict(states),
        "not as drawn": wrong[:20],
    }


class _Cost:
    """Wall and CPU time since it was made."""

    def __init__(self) -> None:
        self.began, self.used = time.monotonic(), self._used()

    @staticmethod
    def _used() -> tuple[float, float]:
        both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
        own, children = (usage.ru_utime + usage.ru_stime for usage in both)
        return own, children

    def found(self, hosts: int) -> dict[str, float]:
        wall_s = time.monotonic() - self.began
        own, children = (after - before for after, before in zip(self._used(), self.used, strict=True))
        return {
            "wall_s": round(wall_s, 2),
            "own_cpu_ms_per_host": round(1000 * own / hosts, 1),
            "children_cpu_ms_per_host": round(1000 * children / hosts, 1),
            "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        }


def sshd(hosts: int, forks: int, seconds: float, *, ansible: bool) -> dict[str, Any]:
    """The command of tools/fleet.py, from its start to its end."""
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        far_hosts.make(place)
        record = store.serialise(derive(raw_record("zero_copy")))
        (place / "record.json").write_bytes(record)
        (place / "tree" / "bin").mkdir(parents=True)
        script = place / "tree" / "bin" / "copyscope"
        script.write_text(f"#!/bin/sh\nsleep {seconds}\nexec cat {place}/record.json\n")
        script.chmod(0o755)
        (place / "ansible.cfg").write_text("[defaults]\n")
        os.environ |= {"ANSIBLE_CONFIG": str(place / "ansible.cfg"), "ANSIBLE_HOME": str(place / "ansible")}
        names = "".join(f"web{number}\n" for number in range(hosts))
        words = ["--tree", str(place / "tree"), "--forks", str(forks), "--quiet", *["--ansible"] * ansible]
        cost = _Cost()
        running = far_hosts.fleet(place, names, *words, "--", "run")
        table, errors = running.communicate(timeout=300)
        found = cost.found(hosts)
        if running.returncode != 0:
            raise SystemExit(f"fleet_cost: {table}{errors}")
    engine = "ansible" if ansible else "ssh"
    return {"hosts": hosts, "engine": engine, "command_s": seconds, "record_bytes": len(record), **found}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=("sshd", "simulate"))
    parser.add_argument("hosts", type=int)
    parser.add_argument("--ansible", action="store_true")
    parser.add_argument("--forks", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, metavar="DIR", help="keeps what was answered, and goes on there")
    parser.add_argument("--within", type=float, default=None, metavar="S", help="ends after so many seconds")
    parser.add_argument(
        "--seconds", type=float, help="that the command takes on a host: 5, or 1 of those that are simulated"
    )
    given = parser.parse_args()
    if given.seconds is None:
        given.seconds = 1.0 if given.what == "simulate" else 5.0
    if given.what == "simulate":
        with tempfile.TemporaryDirectory() as name:
            record = Path(name, "record.json")
            record.write_bytes(store.serialise(derive(raw_record("zero_copy"))))
            places = drawn(given.hosts, given.seed, given.seconds, record)
            found = simulate(given.out or Path(name, "out"), places, given.forks, given.within)
            found |= {"seed": given.seed, "record_bytes": record.stat().st_size}
    else:
        found = sshd(given.hosts, given.forks, given.seconds, ansible=given.ansible)
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
