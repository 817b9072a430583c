# SPDX-License-Identifier: GPL-2.0-only
"""Build the BPF objects with every clang of Debian, load them on several kernels, and print a table.

    make check-compilers                                  all compilers; this kernel and four of Debian's
    make check-compilers KERNELS=here COMPILERS="13 19"   some compilers, on this kernel alone
    make check-compilers KERNELS="here 5.10"              this kernel and one guest; columns of others stay

A compiler is downloaded with its libraries (fetch.sh) and started by its own loader, so nothing is installed
and its C library may be newer than this machine's. The objects and their collector are built in
.output/compilers/clang-N with this kernel's vmlinux.h, as on a user's machine, and stay there, so that
kernels can be tested one by one. The script `accepts` loads them with `collector --load`. A program that a
kernel refuses fails the run. With all compilers, the results are written to results/kernels/compilers.json
and docs/reference/machines.md; results of other kernels stay as they are.
"""

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from machines import RESULTS as PAGE_RESULTS
from machines import compiler_table, write_page
from matrix import KEPT, KERNELS, ROOT, Kernel, fetch, start_guest
from selection import Boot

HERE = "here"
BUILDS = ROOT / ".output" / "compilers"
# Version of clang -> suite that has it: from the oldest in Debian 12 to the newest in sid.
SUITES = {13: "bookworm", 14: "bookworm", 15: "bookworm", 16: "bookworm"}
SUITES |= {17: "trixie", 18: "trixie", 19: "trixie", 21: "sid", 22: "sid", 23: "sid"}
AMD64_KERNELS = [kernel for kernel in KERNELS if kernel.arch == "amd64"]


# Refusals that are no compiler's fault: (kernel, set of options, hook) -> reason. An empty hook means the
# whole set.
NO_REGISTERS = "5.10 has no bpf_task_pt_regs(): splice(2) is counted all the time there"
KNOWN_REFUSALS = {
    ("5.10", "watched", "splice_seen"): NO_REGISTERS,
    ("5.10", "kprobe", "splice_seen"): NO_REGISTERS,
    ("5.10", "cgroup", ""): "5.10 does not offer bpf_get_current_ancestor_cgroup_id() to tracing programs",
}


@dataclass
class Cell:
    """How one kernel received the programs of one compiler: counts and reasons."""

    compiler: str
    kernel: str
    accepted: int = 0
    refused: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    # Programs that a policy refused before the verifier checked them.
    not_permitted: int = 0


def wrap(root: Path, version: int, wrapper: Path) -> bool:
    """Write a script that runs an unpacked clang with its own libraries.

    Return True if the script changed.
    """
    loader = next(root.rglob("ld-linux-*.so.*"))
    headers = next(root.glob(f"usr/lib/llvm-{version}/lib/clang/*/include/stddef.h"))
    libraries = [*root.glob("lib/*-linux-gnu"), *root.glob("usr/lib/*-linux-gnu")]
    libraries.append(root / "usr" / "lib" / f"llvm-{version}" / "lib")
    text = (
        f"#!/bin/sh\nexec '{loader}' --library-path '{':'.join(map(str, libraries))}' \\\n"
        f"  '{root}/usr/lib/llvm-{version}/bin/clang' -resource-dir '{headers.parent.parent}' \"$@\"\n"
    )
    if wrapper.exists() and wrapper.read_text() == text:
        return False
    wrapper.parent.mkdir(parents=True, exist_ok=True)
    wrapper.write_text(text)
    wrapper.chmod(0o755)
    return True


def root_of(version: int) -> str | None:
    """Download a clang with its libraries, and return its directory, or None."""
    arch = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout
    return fetch(f"{SUITES[version]}/all", arch.strip(), f"clang-{version}")


def build(root: str, version: int, jobs: int) -> str | None:
    """Build objects and collector with a compiler. Return the compiler's version, or None if that failed."""
    output = BUILDS / f"clang-{version}"
    wrapper = BUILDS.with_name("compilers.d") / f"clang-{version}"
    if wrap(Path(root), version, wrapper):
        shutil.rmtree(output, ignore_errors=True)
    output_text = subprocess.run([wrapper, "--version"], capture_output=True, text=True, check=True).stdout
    output.mkdir(parents=True, exist_ok=True)
    argv = ["make", "--no-print-directory", f"-j{jobs}", f"OUTPUT={output.relative_to(ROOT)}"]
    argv += [f"CLANG={wrapper}", "VMLINUX_H=.output/vmlinux.h"]
    argv += [str((output / program).relative_to(ROOT)) for program in ("collector", "xdp_pass.bpf.o")]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(argv, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=False)
    match = re.search(r"clang version (\d+\.\d+\.\d+)", output_text)
    return match[1] if done.returncode == 0 and match else None


def judge(directory: Path, compiler: str, kernel: str) -> Cell:
    """Read the results of `accepts` for one compiler."""
    cell = Cell(compiler, kernel)
    for path in sorted(directory.glob(f"{compiler}-*.json")):
        mode = path.stem.removeprefix(f"{compiler}-")
        try:
            hooks = json.loads(path.read_text())["hooks"]
        except ValueError:
            first_line = path.with_suffix(".txt").read_text(errors="replace").split("\n")[0]
            note_refused(cell, mode, "", f"the collector did not start: {first_line}")
            continue
        for hook in hooks:
            judge_hook(hook, mode, cell)
    status = directory / f"{compiler}-xdp.status"
    if status.exists() and status.read_text().strip() == "0":
        cell.accepted += 1
    else:
        cell.refused.append("xdp_pass")
    return cell


def note_refused(cell: Cell, mode: str, hook: str, reason: str) -> None:
    known_reason = KNOWN_REFUSALS.get((cell.kernel, mode, hook))
    if known_reason is not None:
        cell.known.append(known_reason)
    else:
        cell.refused.append(f"{mode}: {hook}: {reason}" if hook else f"{mode}: {reason}")


def judge_hook(hook: dict[str, Any], mode: str, cell: Cell) -> None:
    """Count one hook. A program that was loaded counts as accepted, even if it could not be attached."""
    reason = hook["reason"] or ""
    if hook["state"] in ("available", "attached"):
        cell.accepted += 1
    elif hook["state"] == "refused" and "load: Operation not permitted" in reason:
        cell.not_permitted += 1
    elif hook["state"] == "refused" and "load: " in reason:
        note_refused(cell, mode, hook["id"], reason)
    elif hook["state"] == "refused":
        cell.accepted += 1


def ask_here(directory: Path) -> int:
    return subprocess.run([ROOT / "tests/kernels/accepts", directory], cwd=ROOT, check=False).returncode


def ask_guest(kernel: Kernel, directory: Path) -> int:
    root = fetch(kernel.suite, kernel.arch)
    if root is None:
        return 1
    command = "RESULTS=results tests/kernels/accepts /run/results"
    return start_guest(kernel, command, root, directory, Boot("compilers"))[0]


def ask(name: str, compilers: Sequence[str]) -> tuple[str, list[Cell]]:
    """Load the programs on one kernel. Return its release and its column of the table."""
    directory = KEPT / f"compilers-{name}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    status = (
        ask_here(directory)
        if name == HERE
        else ask_guest(next(k for k in AMD64_KERNELS if k.name == name), directory)
    )
    release = directory / "release"
    shown = release.read_text().strip() if release.exists() else name
    print(f"  KERNEL {name}: {shown}", flush=True)
    cells = [judge(directory, compiler, name) for compiler in compilers]
    for cell in cells:
        if status != 0 or not cell.accepted:
            cell.refused.append(f"nothing was loaded: see {directory.relative_to(ROOT)}")
    return shown, cells


def keep(results: dict[str, Any]) -> None:
    """Write results of these kernels, keep those of others, and write the page."""
    path = PAGE_RESULTS / "compilers.json"
    results |= {"dates": dict.fromkeys(results["kernels"], results["made"])}
    if path.exists():
        earlier = json.loads(path.read_text())
        other_cells = [cell for cell in earlier["cells"] if cell["kernel"] not in results["kernels"]]
        dates = earlier.get("dates", dict.fromkeys(earlier["kernels"], earlier["made"]))
        results = results | {
            "kernels": earlier["kernels"] | results["kernels"],
            "cells": other_cells + results["cells"],
        }
        results |= {"dates": dates | results["dates"]}
    path.write_text(json.dumps(results, indent=1) + "\n")
    write_page()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Load what every clang made on every kernel.")
    names = [HERE, *(kernel.name for kernel in AMD64_KERNELS)]
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help=", ".join(names))
    parser.add_argument("--compilers", default="", help=f"some of {' '.join(map(str, SUITES))}")
    options = parser.parse_args(arguments)
    kernel_names = options.kernels or names
    versions = [int(word) for word in options.compilers.split()] or list(SUITES)
    unknown = [*(set(kernel_names) - set(names)), *map(str, set(versions) - set(SUITES))]
    if unknown:
        parser.error(f"{', '.join(unknown)}: not in the table")
    jobs = len(os.sched_getaffinity(0))
    roots = {version: root_of(version) for version in versions}
    for version in [version for version, root in roots.items() if root is None and SUITES[version] == "sid"]:
        print(f"  clang-{version}: left out, because sid no longer has it")
        del roots[version]
    # `accepts` loads whatever it finds, so builds that were not requested are removed.
    for directory in BUILDS.glob("clang-*"):
        if int(directory.name[6:]) not in roots:
            shutil.rmtree(directory)
    versions_built = {version: root and build(root, version, jobs) for version, root in roots.items()}
    problems = [
        f"clang-{version}: cannot be downloaded or does not build (see above)"
        for version in versions_built
        if not versions_built[version]
    ]
    compilers = {
        f"clang-{version}": compiler_version
        for version, compiler_version in versions_built.items()
        if compiler_version
    }
    with ThreadPoolExecutor(jobs) as pool:
        columns = dict(
            zip(kernel_names, pool.map(lambda name: ask(name, list(compilers)), kernel_names), strict=True)
        )
    cells = [cell for _, column in columns.values() for cell in column]
    problems += [f"{cell.compiler} on {cell.kernel}: {refusal}" for cell in cells for refusal in cell.refused]
    results = {
        "made": datetime.now(UTC).strftime("%Y-%m-%d"),
        "vmlinux_h_of": platform.release(),
        "compilers": {
            name: {"version": compiler_version, "suite": SUITES[int(name[6:])]}
            for name, compiler_version in compilers.items()
        },
        "kernels": {name: release for name, (release, _) in columns.items()},
        "cells": [asdict(cell) for cell in cells],
    }
    print(f"\n{compiler_table(results)}")
    print("\n".join(problems))
    if not options.compilers:
        keep(results)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
