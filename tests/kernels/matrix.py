# SPDX-License-Identifier: GPL-2.0-only
"""Run the live tests of this tree on other kernels in QEMU, and write a table and two pages of the outcomes.

    make check-kernels                            all kernels, all tests
    make check-kernels KERNELS="6.12 7.x"         some kernels
    make check-kernels MATRIX=--brief             what differs between kernels, in half an hour
    make check-kernels MATRIX=--least             what CI runs; prints, and writes nothing
    make check-kernels KERNELS=7.x MATRIX="--only test_nics.py"    updates the kept results of that kernel
    make check-kernels MATRIX=--page              writes the pages from kept results; runs nothing

Each kernel is downloaded (fetch.sh) and booted (boot.sh), and the script `inside` runs in it. The output of a
guest is kept in .output/kernels/NAME-BOOT, its outcome in results/kernels. From these outcomes,
docs/reference/kernels.md and docs/reference/ways.md are made. The run fails if a kernel cannot be downloaded
or does not boot, if a test fails, or if the drill has another result than the kept one.
"""

import argparse
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "pages"))

import sentences
from document import log, overview, problems_of, summary
from outcome import AGAIN, Outcome, read_boot
from selection import KPROBE_ONLY, LEFT_OUT, Boot, boots_of
from ways import kept_ways, ways_page

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
KEPT = ROOT / ".output" / "kernels"
RESULTS = ROOT / "results" / "kernels"
DOCS = ROOT / "docs"

# How many times slower a guest is than its host, if it runs alone (COPYSCOPE_SLOW).
SLOW = 6
# One test loads all programs four times and switches their hooks on and off twenty times. Each switch takes
# 15 to 21 s in a guest on a busy host.
TEST_TIMEOUT_S = 900
GUEST_TIMEOUT_S = 2400

# Two network cards on one cable without other connections, for --topology nics.
CABLED_PAIR = (
    *("-netdev", "hubport,id=a,hubid=0", "-device", "e1000,netdev=a,mac=52:54:00:00:00:0a"),
    *("-netdev", "hubport,id=b,hubid=0", "-device", "e1000,netdev=b,mac=52:54:00:00:00:0b"),
)
NICS = "eth0,eth1"


@dataclass(frozen=True)
class Kernel:
    """Row of the matrix: the newest kernel of a Debian suite."""

    name: str
    suite: str
    arch: str = "amd64"


KERNELS = (
    Kernel("5.10", "bullseye"),
    Kernel("6.1", "bookworm"),
    Kernel("6.12", "trixie"),
    Kernel("7.x", "sid"),
    Kernel("6.12-arm64", "trixie", "arm64"),
)
# Packages with static libraries and busybox for guests of another architecture, and their suite: the oldest
# with libbpf 1.x, so that its C library is not newer than the one they are linked with.
LIBRARIES = ("libbpf-dev", "libelf-dev", "zlib1g-dev", "libjansson-dev", "busybox-static")
LIBRARIES_OF = {"arm64": ("bookworm", *LIBRARIES)}
# Exit status of pytest, and of a guest, if tests failed. Each failed test is a problem of its own.
TESTS_FAILED = 1
EMULATORS = {"amd64": "x86_64", "arm64": "aarch64"}


@dataclass(frozen=True)
class Ended:
    """A guest that has ended: its directory, exit status, duration, CPU time of the emulator."""

    kept: Path
    status: int
    seconds: float
    cpu_seconds: float


class Matrix:
    """A run over some kernels.

    A thread for each kernel waits for its guests, and guests share `jobs` slots.
    """

    def __init__(self, extent: str, jobs: int) -> None:
        self.extent = extent
        # Slots for work that keeps a CPU busy.
        self.turns = threading.Semaphore(jobs)
        # File under results -> file of this run (doctor's output, drill's table) that replaces it.
        self.found: dict[Path, Path] = {}
        self.slow = SLOW * -(-jobs // (os.cpu_count() or 1))

    def run_kernel(self, kernel: Kernel) -> Outcome:
        """Download and boot a kernel, and read its results. Failures become lines of `problems`."""
        outcome = Outcome(
            kernel.name,
            kernel.suite,
            kernel.arch,
            made=datetime.now(UTC).strftime("%Y-%m-%d"),
            emulator=emulator(kernel.arch),
            processors=2 if kernel.arch == "amd64" else 1,
            extent=self.extent,
        )
        with self.turns:
            root = fetch(kernel.suite, kernel.arch)
            if root is None:
                outcome.problems.append(f"{kernel.suite}-{kernel.arch} cannot be downloaded (above)")
                return outcome
            if kernel.arch != "amd64" and not build_cross(kernel.arch, root):
                outcome.problems.append(f"the programs for {kernel.arch} cannot be built (above)")
                return outcome
        boots = self.boots_of(kernel)
        with ThreadPoolExecutor(len(boots)) as guests:
            for boot, ended in zip(boots, guests.map(partial(self._start, kernel, root), boots), strict=True):
                self._read(kernel, boot, ended, outcome)
        failed = [row["id"] for row in outcome.tests if row["outcome"] == "failed"]
        if failed and kernel.arch == "amd64":
            print("\n".join(f"  AGAIN {kernel.name}: {problem}" for problem in outcome.problems), flush=True)
            self._repeat(kernel, root, outcome, failed)
        return outcome

    def run_again(self, kernel: Kernel, tests: Sequence[str]) -> Outcome:
        """Run only these tests, in one guest, and update the kept outcome of this kernel."""
        outcome = Outcome.read(RESULTS / f"{kernel.name}.json")
        root = fetch(kernel.suite, kernel.arch)
        if root is None:
            outcome.problems.append(f"{kernel.suite}-{kernel.arch} cannot be downloaded (above)")
            return outcome
        self._repeat(kernel, root, outcome, tests)
        return outcome

    def _repeat(self, kernel: Kernel, root: str, outcome: Outcome, tests: Sequence[str]) -> None:
        """Run these tests in another guest, and replace their results in the outcome."""
        outcome.forget(tests, datetime.now(UTC).strftime("%Y-%m-%d"))
        boot = Boot(AGAIN, tuple(tests))
        self._read(kernel, boot, self._start(kernel, root, boot), outcome)

    def boots_of(self, kernel: Kernel) -> list[Boot]:
        """Return the guests to start for a kernel."""
        if kernel.arch != "amd64":
            return [Boot("all", surveys=True)]
        test_files = [path.name for path in (ROOT / "tests" / "live").glob("test_*.py")]
        return boots_of(kernel.name, test_files, self.extent)

    def _command(self, kernel: Kernel, boot: Boot, directory: Path) -> str:
        if kernel.arch != "amd64":
            return "/guest/inside results"
        command = f"COPYSCOPE_SLOW={self.slow} COPYSCOPE_NICS={NICS}"
        command += " SURVEY=1" if boot.surveys else ""
        if boot.profiles:
            options = "--size 1M --duration 12"
            options += "" if kernel.name in KPROBE_ONLY else " --gate 1"
            command += f" PROFILES='{options}'"
        if not boot.tests:
            return f"{command} tests/kernels/inside results"
        arguments = ["-v", f"--timeout={TEST_TIMEOUT_S}"]
        arguments += [f"--deselect=tests/live/{test}" for test in LEFT_OUT]
        arguments += [f"tests/live/{name}" for name in boot.tests]
        # The arguments are in a file, because a kernel's command line is cut after 2,048 bytes.
        (directory / "arguments.txt").write_text("\n".join(arguments) + "\n")
        return f"{command} tests/kernels/inside results @/run/results/arguments.txt"

    def _start(self, kernel: Kernel, root: str, boot: Boot) -> Ended:
        """Run one guest from power-on to power-off, once a slot is free."""
        kept = KEPT / f"{kernel.name}-{boot.name}"
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir(parents=True)
        command = self._command(kernel, boot, kept)
        with self.turns:
            began = time.monotonic()
            status, cpu_seconds = start_guest(kernel, command, root, kept, boot)
            seconds = time.monotonic() - began
        print(f"  GUEST {kernel.name} {boot.name}: {seconds:.0f} s", flush=True)
        return Ended(kept, status, seconds, cpu_seconds)

    def _read(self, kernel: Kernel, boot: Boot, ended: Ended, outcome: Outcome) -> None:
        """Read the results of a guest into the outcome of its kernel."""
        outcome.boots += 1
        outcome.seconds += ended.seconds
        outcome.cpu_seconds += ended.cpu_seconds
        if kernel.arch != "amd64":
            judge_outside(ended.kept)
        tested = bool(boot.tests) or kernel.arch != "amd64"
        read_before = len(outcome.tests)
        read_boot(ended.kept, outcome, surveyed=boot.surveys, tested=tested)
        failed = any(row["outcome"] == "failed" for row in outcome.tests[read_before:])
        if ended.status not in ((0, TESTS_FAILED) if failed else (0,)):
            log = (ended.kept / "log.txt").relative_to(ROOT)
            outcome.problems.append(f"{boot.name}: the guest ended with status {ended.status}: see {log}")
        kept = {RESULTS / f"{kernel.name}.doctor.txt": "doctor.txt", kept_ways(kernel.name): "drill.json"}
        self.found |= {path: ended.kept / name for path, name in kept.items() if (ended.kept / name).exists()}
        outcome.require(test for test in boot.tests if "::" in test)


def emulator(arch: str) -> str:
    program = f"qemu-system-{EMULATORS[arch]}"
    version = subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout
    accelerator = os.environ.get("COPYSCOPE_ACCEL", "tcg") if arch == "amd64" else "tcg, icount"
    return f"{version.partition('(')[0].strip()} ({accelerator})"


def fetch(suite: str, arch: str, *packages: str) -> str | None:
    argv = [str(HERE / "fetch.sh"), suite, arch, *packages]
    done = subprocess.run(argv, stdout=subprocess.PIPE, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else None


def build_cross(arch: str, root: str) -> bool:
    """Build static programs for another architecture from the same sources. Return True on success."""
    suite, *packages = LIBRARIES_OF[arch]
    sysroot = fetch(suite, arch, *packages)
    if sysroot is None:
        return False
    argv = ["make", "--no-print-directory", "-f", str(HERE / "cross" / "cross.mk")]
    argv += [f"ARCH={arch}", f"KERNEL={root}", f"SYSROOT={sysroot}"]
    # Variables of the calling make are removed, because OUTPUT and CC have other values here.
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
    return subprocess.run(argv, cwd=ROOT, check=False, env=environment).returncode == 0


def tree_of(arch: str) -> str:
    """Return the directory that a guest of another architecture sees as its file system."""
    return str(ROOT / ".output" / arch / "tree")


def start_guest(kernel: Kernel, command: str, root: str, kept: Path, boot: Boot) -> tuple[int, float]:
    """Run a guest. Return its exit status and the CPU time (s) that its emulator used."""
    limits = {"COPYSCOPE_GUEST_TIMEOUT_S": str(GUEST_TIMEOUT_S), "COPYSCOPE_GUEST_CPUS": str(boot.processors)}
    environment = {**limits, **os.environ}
    environment["COPYSCOPE_GUEST_APPEND"] = f"{os.environ.get('COPYSCOPE_GUEST_APPEND', '')} {boot.append}"
    if kernel.arch == "amd64":
        extra: Sequence[str] = CABLED_PAIR
    else:
        extra = ()
        environment |= {"COPYSCOPE_GUEST_ARCH": kernel.arch, "COPYSCOPE_GUEST_TREE": tree_of(kernel.arch)}
    argv = [str(HERE / "boot.sh"), root, command]
    argv += ["-fsdev", f"local,id=results,path={kept},security_model=none,multidevs=remap"]
    argv += ["-device", "virtio-9p-pci,fsdev=results,mount_tag=results", *extra]
    with (kept / "log.txt").open("w") as log:
        guest = subprocess.Popen(argv, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT, env=environment)
        _, status, used = os.wait4(guest.pid, 0)
        guest.returncode = os.waitstatus_to_exitcode(status)
    return guest.returncode, used.ru_utime + used.ru_stime


def judge_outside(kept: Path) -> None:
    """Check the output of a guest of another architecture (test_cross.py). Writes tests.jsonl, too."""
    argv = [sys.executable, "-P", "-B", "-m", "pytest", "-p", "no:cacheprovider", "-p", "as_it_goes", "-v"]
    argv += ["--tb=short", str((HERE / "cross" / "test_cross.py").relative_to(ROOT))]
    environment = {
        **os.environ,
        "PYTHONPATH": str(HERE),
        "COPYSCOPE_GUEST_RESULTS": str(kept),
        "COPYSCOPE_TESTS_JSONL": str(kept / "tests.jsonl"),
    }
    with (kept / "log.txt").open("a") as log:
        subprocess.run(argv, cwd=ROOT, check=False, stdout=log, stderr=subprocess.STDOUT, env=environment)


def keep(outcomes: Iterable[Outcome], replacements: Mapping[Path, Path]) -> None:
    """Write the outcomes and `found` files to results/kernels, and the pages from all outcomes."""
    for outcome in outcomes:
        outcome.write(RESULTS)
    for path, fresh_file in replacements.items():
        shutil.copyfile(fresh_file, path)
    for path, text in pages().items():
        path.write_text(text)


def pages() -> dict[Path, str]:
    """Return path -> text of the three pages, from all kept outcomes."""
    kept_files = [RESULTS / f"{kernel.name}.json" for kernel in KERNELS]
    outcomes = [Outcome.read(path) for path in kept_files if path.exists()]
    texts = {
        DOCS / "reference" / "kernels.md": overview(outcomes),
        RESULTS / "README.md": log(outcomes, LEFT_OUT),
        DOCS / "reference" / "ways.md": ways_page(),
    }
    return {path: sentences.rewrite(text) for path, text in texts.items()}


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Run the live tests on other kernels in QEMU.")
    parser.add_argument("names", nargs="*", metavar="KERNEL", help=", ".join(k.name for k in KERNELS))
    # A guest uses one CPU of the host. If it has to wait for the CPU, its clocks go on, and its sampler
    # misses samples.
    cpus = len(os.sched_getaffinity(0))
    parser.add_argument("--jobs", type=int, default=cpus, help="guests at a time (default: as many as CPUs)")
    parser.add_argument("--keep", action="store_true", help="write results/kernels and docs/reference")
    parser.add_argument(
        "--page", action="store_true", help="write docs/reference and the log from kept results; run nothing"
    )
    parser.add_argument(
        "--only", action="append", metavar="TEST", help="run these tests again, and update kept results"
    )
    extent = parser.add_mutually_exclusive_group()
    extent.add_argument("--brief", action="store_const", const="brief", dest="extent", help="half an hour")
    extent.add_argument("--least", action="store_const", const="least", dest="extent", help="what CI runs")
    parser.set_defaults(extent="all")
    options = parser.parse_args(arguments)
    if options.page:
        keep([], {})
        return 0
    unknown = set(options.names) - {kernel.name for kernel in KERNELS}
    if unknown:
        parser.error(f"{', '.join(sorted(unknown))}: not in the matrix")
    chosen = [kernel for kernel in KERNELS if not options.names or kernel.name in options.names]

    if options.only and any(kernel.arch != "amd64" for kernel in chosen):
        parser.error("--only: name the kernels: arm64 has no tests to choose from")

    matrix = Matrix(options.extent, options.jobs)
    with ThreadPoolExecutor(len(chosen)) as pool:
        if options.only:
            outcomes = list(pool.map(lambda kernel: matrix.run_again(kernel, options.only), chosen))
        else:
            outcomes = list(pool.map(matrix.run_kernel, chosen))
    print(f"\n{summary(outcomes)}")
    problems = problems_of(outcomes)
    print("\n".join(problems))
    if options.keep or options.only or options.extent == "all":
        keep(outcomes, matrix.found)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
