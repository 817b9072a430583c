# SPDX-License-Identifier: GPL-2.0-only
"""Soak test: watch one program for hours with --serve and with --live, and see whether either of them grows.

Usage: soak.py [MINUTES]. Default: 120. A table shows the memory, open files, BPF maps and programs, and CPU
time of each watch. The status is 1 if a watch grew from the second quarter of the time to the last.
"""

import contextlib
import os
import pty
import shutil
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from contestants import family
from watch_bench import FILE_BYTES, NGINX, PORT, SEARCHED, WATCH, running

MINUTES = 120.0
ROWS = 24
SERVE_PORT = 9465
SCRAPE_S = 5.0
# Pause between two requests, so that the load leaves the machine usable.
PAUSE_S = 0.002
# Allocators keep what they freed, so that the resident memory of a process without a leak wanders.
GROWTH_MIB = 3.0
CLOCK_HZ = os.sysconf("SC_CLK_TCK")
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True)
class Reading:
    """What a watch and its collector hold at one time. mib: [copyscope, collector]"""

    minute: float
    mib: tuple[float, float]
    files: int
    bpf_maps: int
    bpf_programs: int
    cpu_s: float

    def cells(self) -> str:
        python, collector = self.mib
        counts = f"{self.files:5} {self.bpf_maps:8} {self.bpf_programs:12}"
        return f"{python:13.1f} {collector:13.1f} {counts} {self.cpu_s:9.1f}"


def reading(pid: int, minute: float) -> Reading:
    mib, files, maps, programs, ticks = {True: 0.0, False: 0.0}, 0, 0, 0, 0
    for member in family(pid):
        proc = Path(f"/proc/{member}")
        is_collector = proc.joinpath("comm").read_text().strip() == "collector"
        mib[is_collector] += int(proc.joinpath("statm").read_text().split()[1]) * PAGE_BYTES / 2**20
        times = proc.joinpath("stat").read_text().rpartition(")")[2].split()[11:13]
        ticks += sum(map(int, times))
        for info in proc.joinpath("fdinfo").iterdir():
            files += 1
            # A file may be closed after the directory was read.
            with contextlib.suppress(FileNotFoundError):
                text = info.read_text()
                maps += "map_id:" in text and "map_type:" in text
                programs += "prog_tag:" in text and "link_id:" not in text
    return Reading(minute, (mib[False], mib[True]), files, maps, programs, ticks / CLOCK_HZ)


@contextlib.contextmanager
def nginx() -> Iterator[int]:
    """Run nginx, and request a file from it again and again. Yield the pid of nginx."""
    with contextlib.ExitStack() as exit_:
        here = Path(exit_.enter_context(tempfile.TemporaryDirectory()))
        (here / "file").write_bytes(bytes(FILE_BYTES))
        (here / "conf").write_text(NGINX.format(here=here, port=PORT), encoding="ascii")
        program = str(shutil.which("nginx", path=SEARCHED))
        server = running(exit_, [program, "-p", str(here), "-c", str(here / "conf"), "-g", "user root;"])
        ended = threading.Event()
        exit_.callback(ended.set)
        threading.Thread(target=request_files, args=(ended,)).start()
        yield server.pid


def request_files(ended: threading.Event) -> None:
    while not ended.wait(PAUSE_S):
        # nginx does not listen yet, or closed a connection that served many requests.
        with contextlib.suppress(OSError, HTTPException):
            connection = HTTPConnection("127.0.0.1", PORT, timeout=SCRAPE_S)
            while not ended.wait(PAUSE_S):
                connection.request("GET", "/file")
                connection.getresponse().read()


@contextlib.contextmanager
def serving(pid: int) -> Iterator[int]:
    """Watch with --serve, and read the metrics every SCRAPE_S. Yield the pid of the watch."""
    argv = [*WATCH, "--pid", str(pid), "--serve", f":{SERVE_PORT}"]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL) as watch:
        ended = threading.Event()

        def scrape() -> None:
            while not ended.wait(SCRAPE_S):
                # The watch may not listen yet. A watch that ended is seen in reading().
                with contextlib.suppress(OSError):
                    urllib.request.urlopen(f"http://127.0.0.1:{SERVE_PORT}/metrics", timeout=SCRAPE_S).read()

        scraper = threading.Thread(target=scrape)
        scraper.start()
        try:
            yield watch.pid
        finally:
            ended.set()
            scraper.join()
            watch.terminate()


@contextlib.contextmanager
def live(pid: int) -> Iterator[int]:
    """Watch with --live on a terminal of its own. Yield the pid of the watch."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([*WATCH, "--pid", str(pid), "--live"], stdout=theirs, stderr=theirs) as watch:
        os.close(theirs)

        def drain() -> None:
            with contextlib.suppress(OSError):  # EIO: the watch closed its terminal
                while os.read(ours, 65536):
                    pass

        reader = threading.Thread(target=drain)
        reader.start()
        try:
            yield watch.pid
        finally:
            watch.terminate()
            watch.wait()
            reader.join()
            os.close(ours)


def grown(name: str, readings: list[Reading]) -> list[str]:
    """Name what was, in the whole last quarter, above all that was seen in the second.

    In the first quarter, caches fill and tables of names are read.
    """
    quarter = len(readings) // 4
    early, late = readings[quarter : 2 * quarter], readings[-quarter:]
    values: dict[str, Callable[[Reading], float]] = {
        "MiB of copyscope": lambda row: row.mib[0],
        "MiB of the collector": lambda row: row.mib[1],
        "open files": lambda row: row.files,
        "BPF maps": lambda row: row.bpf_maps,
        "BPF programs": lambda row: row.bpf_programs,
    }
    sentences = []
    for what, value in values.items():
        before, after = max(map(value, early)), min(map(value, late))
        if after > before + GROWTH_MIB * what.startswith("MiB"):
            sentences.append(f"{name}: {what} grew from {before:.1f} to {after:.1f}")
    return sentences


def main(minutes: float) -> int:
    readings: dict[str, list[Reading]] = {"serve": [], "live": []}
    with nginx() as pid, serving(pid) as serve_pid, live(pid) as live_pid:
        print("watch  minute copyscope MiB collector MiB files BPF maps BPF programs CPU s", flush=True)
        began_s = time.monotonic()
        for _ in range(ROWS):
            time.sleep(60 * minutes / ROWS)
            minute = (time.monotonic() - began_s) / 60
            for name, watch_pid in (("serve", serve_pid), ("live", live_pid)):
                readings[name].append(reading(watch_pid, minute))
                print(f"{name:6} {minute:6.1f} {readings[name][-1].cells()}", flush=True)
    sentences = [sentence for name, rows in readings.items() for sentence in grown(name, rows)]
    print("\n".join(sentences) or f"nothing grew in the second half of {minutes:g} minutes")
    return bool(sentences)


if __name__ == "__main__":
    raise SystemExit(main(float(sys.argv[1]) if len(sys.argv) > 1 else MINUTES))
