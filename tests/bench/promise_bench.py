# SPDX-License-Identifier: GPL-2.0-only
"""Benchmark: the saving that `copyscope advise` promises for a real program, and the measured one.

Each file of promised/ is a program, a change that `advise` names, and a load. The program runs on one CPU and
its clients on another. The measured saving comes from the kernel alone: busy time of the program's CPU per
byte of TCP payload, without the change and with it, in PAIRS pairs in random order. Then
`copyscope advise --measure` watches the program without the change.
"""

import contextlib
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contestants import family
from copyscope.base import paths
from samples import compare
from watch_bench import SEARCHED, SETTLE_S, running

CASES = Path(__file__).parent / "promised"
ADVISE = [str(paths.ROOT / "bin" / "copyscope"), "advise", "--quiet", "--measure"]
PAIRS = 4
LOAD_S = 3.0
START_S = 30.0
FIRST_BYTES = 1 << 20
ADVISE_S = 8
END_S = 240.0
PORT = 5207
# IPv4 and TCP with timestamps.
HEADER_BYTES = 20 + 32
TICK_S = 1 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Case:
    """A program and a change of it. In all texts {here}, {port}, {cases} and {value} are replaced.

    remedy: name of the change in the advice
    values: `{value}` without the change and with it
    program, client: commands; the client loads the program until it is killed
    config: text of the file {here}/conf
    helper, helper_config: a further server on the clients' CPU, such as the one behind a proxy, and the text
        of its file {here}/helper
    file_bytes: size of the file {here}/file
    """

    name: str
    remedy: str
    values: tuple[str, str]
    program: str
    client: str
    config: str = ""
    helper: str = ""
    helper_config: str = ""
    file_bytes: int = 1 << 20

    def missing(self) -> str | None:
        """Return the first program that is not installed, or None."""
        names = (shlex.split(command)[0] for command in (self.program, self.client, self.helper) if command)
        return next((name for name in names if shutil.which(name, path=SEARCHED) is None), None)


def read_cases() -> list[Case]:
    return [
        Case(name=file.stem, **tomllib.loads(file.read_text(encoding="utf-8")))
        for file in sorted(CASES.glob("*.toml"))
    ]


@contextlib.contextmanager
def load(case: Case, value: str, cpus: list[str]) -> Iterator[list[int]]:
    """Run the program and its clients. Yield the pids of the program and its children."""
    with contextlib.ExitStack() as exit_:
        here = Path(exit_.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True)))
        here.chmod(0o755)
        (here / "file").write_bytes(bytes(case.file_bytes))

        def fill(text: str) -> str:
            for key, replacement in {"here": here, "port": PORT, "cases": CASES, "value": value}.items():
                text = text.replace(f"{{{key}}}", str(replacement))
            return text

        def start(command: str, cpu: str) -> int:
            argv = shlex.split(fill(command))
            path = shutil.which(argv[0], path=SEARCHED)
            return running(exit_, ["taskset", "-c", cpu, str(path), *argv[1:]]).pid

        (here / "conf").write_text(fill(case.config), encoding="utf-8")
        (here / "helper").write_text(fill(case.helper_config), encoding="utf-8")
        (here / "empty").mkdir()
        if case.helper:
            start(case.helper, cpus[1])
        pid = start(case.program, cpus[0])
        exit_.callback(end_children, pid)
        wait_until(listens, f"{case.name}: {case.program}: does not listen on port {PORT}")
        before = payload_bytes()
        start(case.client, cpus[1])
        wait_until(lambda: payload_bytes() > before + FIRST_BYTES, f"{case.name}: its client gets no data")
        # A child that answered the first request may end.
        members = family(pid)
        time.sleep(SETTLE_S)
        yield [member for member in family(pid) if member in members]


def end_children(pid: int) -> None:
    for child in family(pid)[1:]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def wait_until(condition: Callable[[], bool], otherwise: str) -> None:
    deadline_s = time.monotonic() + START_S
    while not condition():
        if time.monotonic() > deadline_s:
            raise SystemExit(otherwise)
        time.sleep(0.1)


def listens() -> bool:
    """Return True if a socket of this network namespace listens on PORT (state 0A in /proc/net/tcp)."""
    texts = (Path(f"/proc/net/{name}").read_text(encoding="ascii") for name in ("tcp", "tcp6"))
    rows = (line.split() for text in texts for line in text.splitlines())
    return any(row[1].endswith(f":{PORT:04X}") and row[3] == "0A" for row in rows)


def busy_s(cpu: str) -> float:
    """Return the busy seconds of a CPU since boot: user, nice, system, irq and softirq (proc_stat(5))."""
    for line in Path("/proc/stat").read_text(encoding="ascii").splitlines():
        name, *fields = line.split()
        if name == f"cpu{cpu}":
            user, nice, system, _idle, _iowait, irq, softirq, *_ = map(int, fields)
            return (user + nice + system + irq + softirq) * TICK_S
    raise ValueError(f"/proc/stat: no cpu{cpu}")


def payload_bytes() -> int:
    """Return the bytes of TCP payload that this network namespace has sent, without headers."""
    counts = _pairs("/proc/net/netstat")["IpExt:"] | _pairs("/proc/net/snmp")["Tcp:"]
    return counts["OutOctets"] - HEADER_BYTES * counts["OutSegs"]


def _pairs(file: str) -> dict[str, dict[str, int]]:
    """Read a file in which each line of names is followed by a line of values."""
    lines = [line.split() for line in Path(file).read_text(encoding="ascii").splitlines()]
    return {
        names[0]: dict(zip(names[1:], map(int, values[1:]), strict=True))
        for names, values in zip(lines[::2], lines[1::2], strict=True)
    }


def ns_per_kib(cpu: str) -> float:
    """Return the busy time of a CPU per KiB of payload during LOAD_S."""
    busy, sent = busy_s(cpu), payload_bytes()
    time.sleep(LOAD_S)
    return (busy_s(cpu) - busy) * 1e9 / max(1, payload_bytes() - sent) * 1024


def promise(pids: list[int], remedy: str) -> dict[str, Any]:
    """Return what `advise` promises for a remedy: bounds, and the saving of a stand-in if it ran."""
    with tempfile.TemporaryDirectory() as scratch:
        record = Path(scratch) / "record.json"
        argv = [
            *ADVISE,
            "--pid",
            ",".join(map(str, pids)),
            "--duration",
            str(ADVISE_S),
            "--json",
            str(record),
        ]
        done = subprocess.run(
            argv, check=False, timeout=END_S, stdin=subprocess.DEVNULL, capture_output=True, text=True
        )
        if not record.exists():
            raise SystemExit(f"{' '.join(argv)}: status {done.returncode}: {done.stderr}")
        advice = json.loads(record.read_text(encoding="utf-8"))["advice"] or {}
    row: dict[str, Any] = next((row for row in advice.get("remedies") or () if row["name"] == remedy), {})
    stand_in = advice.get("stand_in") or {}
    return {
        "answer": row.get("answer"),
        "why": row.get("why"),
        "how": row.get("how"),
        "bounds": row.get("saves"),
        "stand_in": stand_in.get("saves") if stand_in.get("remedy") == remedy else None,
    }


def rows(seed: int, cpus: list[str]) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """Yield the promise and the measured saving of each program that is installed."""
    shuffler = random.Random(seed)
    for case in read_cases():
        if (missing := case.missing()) is not None:
            print(f"promise: {case.name}: {missing}: not installed")
            continue
        samples: dict[str, list[dict[str, float]]] = {"before": [], "after": []}
        for _ in range(PAIRS):
            for state in shuffler.sample(list(samples), 2):
                with load(case, case.values[state == "after"], cpus):
                    samples[state].append({"ns_per_kib": ns_per_kib(cpus[0])})
        ratio = compare(samples, "after", "before", "ns_per_kib", {"size_bytes": case.file_bytes})
        with load(case, case.values[0], cpus) as pids:
            promised = promise(pids, case.remedy)
        yield [], {"program": case.name, "comparison": ratio, "promise": promised, "samples": samples}


def lines(raw: list[dict[str, Any]]) -> list[str]:
    """Return the section of results/bench/README.md."""
    text = [
        "CPU time per byte that a change of a real program saves: promised by `copyscope advise` before the",
        f"change, and measured by {PAIRS} pairs without copyscope. Bounds hold for any program of this kind;",
        "the stand-in is copyscope's own traffic of the same sizes on this machine.",
        "",
        "| program and change | likely | bounds | stand-in | measured | bounds hold it |",
        "|---|---|---|---|---|---|",
    ]
    for item in raw:
        ratio, promised = item["comparison"], item["promise"]
        saved, low, high = (1 - ratio[key] for key in ("ratio", "high", "low"))
        bounds, stand_in = promised["bounds"], promised["stand_in"]
        likely = bounds and bounds["likely_share"]
        is_held = bounds and bounds["least_share"] <= high and low <= bounds["most_share"]
        cells = [
            item["program"].replace("_", " "),
            "n/a" if likely is None else f"{likely * 100:.0f} %",
            spread(bounds and (bounds["least_share"], bounds["most_share"])),
            spread(stand_in and (stand_in["low"], stand_in["high"])),
            f"{saved:.0%} ({low:.0%} to {high:.0%})".replace("%", " %"),
            "n/a" if not bounds else "yes" if is_held else "no",
        ]
        text.append(f"| {' | '.join(cells)} |")
    return text


def spread(ends: tuple[float, float] | None) -> str:
    return "n/a" if not ends else f"{ends[0] * 100:.0f} to {ends[1] * 100:.0f} %"
