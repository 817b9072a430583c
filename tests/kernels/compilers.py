"""Every BPF object of every clang that Debian has, loaded on this kernel and on others, in QEMU: a table.

    make check-compilers                                  all compilers; this kernel and four of Debian's
    make check-compilers KERNELS=here COMPILERS="13 19"   some compilers, on this kernel alone
    make check-compilers KERNELS="here 5.10"              this kernel, and one guest: the others' columns stay

A compiler is fetched with its own libraries (fetch.sh) and run by its own loader, so nothing is installed
and a newer C library does not matter. The collector is built with its objects into .output/compilers/clang-N,
with this kernel's vmlinux.h, as on a user's machine, and stays there: kernels may be asked one by one. Which
programs a kernel takes is what `collector --load` says there (accepts). A program that one kernel refuses
fails the run. With all compilers, what came of it is written to results/kernels/compilers.json and
docs/reference/machines.md; kernels that were not asked stay as they are.
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
BUILT = ROOT / ".output" / "compilers"
# Which suite has which: the compilers between the oldest of Debian 12 and the newest of sid.
SUITES = {13: "bookworm", 14: "bookworm", 15: "bookworm", 16: "bookworm"}
SUITES |= {17: "trixie", 18: "trixie", 19: "trixie", 21: "sid", 22: "sid", 23: "sid"}
ASKED = [kernel for kernel in KERNELS if kernel.arch == "amd64"]


# What a kernel takes of no compiler, by mode and hook (none: of the whole mode): not the compiler's doing.
NO_REGISTERS = "5.10 has no bpf_task_pt_regs(): splice(2) is counted all the time there"
KNOWN = {
    ("5.10", "watched", "splice_seen"): NO_REGISTERS,
    ("5.10", "kprobe", "splice_seen"): NO_REGISTERS,
    ("5.10", "cgroup", ""): "5.10 offers bpf_get_current_ancestor_cgroup_id() to no tracing program",
}


@dataclass
class Cell:
    """What one kernel made of the programs of one compiler."""

    compiler: str
    kernel: str
    accepted: int = 0
    refused: list[str] = field(default_factory=list)
    known: list[str] = field(default_factory=list)
    # By a policy, before the verifier looked at them.
    not_permitted: int = 0


def wrap(root: Path, version: int, wrapper: Path) -> bool:
    """A program that runs this clang with the libraries that it was made for: whether it is another now."""
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
    arch = subprocess.run(["dpkg", "--print-architecture"], capture_output=True, text=True, check=True).stdout
    return fetch(f"{SUITES[version]}/all", arch.strip(), f"clang-{version}")


def build(root: str, version: int, jobs: int) -> str | None:
    """The version that the compiler gives itself, after its objects and their collector are there."""
    here = BUILT / f"clang-{version}"
    wrapper = BUILT.with_name("compilers.d") / f"clang-{version}"
    if wrap(Path(root), version, wrapper):
        shutil.rmtree(here, ignore_errors=True)
    said = subprocess.run([wrapper, "--version"], capture_output=True, text=True, check=True).stdout
    here.mkdir(parents=True, exist_ok=True)
    argv = ["make", "--no-print-directory", f"-j{jobs}", f"OUTPUT={here.relative_to(ROOT)}"]
    argv += [f"CLANG={wrapper}", "VMLINUX_H=.output/vmlinux.h"]
    argv += [str((here / made).relative_to(ROOT)) for made in ("collector", "xdp_pass.bpf.o")]
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(argv, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL, check=False)
    found = re.search(r"clang version (\d+\.\d+\.\d+)", said)
    return found[1] if done.returncode == 0 and found else None


def judge(kept: Path, compiler: str, kernel: str) -> Cell:
    """What `accepts` left of one compiler."""
    cell = Cell(compiler, kernel)
    for path in sorted(kept.glob(f"{compiler}-*.json")):
        mode = path.stem.removeprefix(f"{compiler}-")
        try:
            hooks = json.loads(path.read_text())["hooks"]
        except ValueError:
            said = path.with_suffix(".txt").read_text(errors="replace").split("\n")[0]
            note_refused(cell, mode, "", f"the collector did not start: {said}")
            continue
        for hook in hooks:
            judge_hook(hook, mode, cell)
    status = kept / f"{compiler}-xdp.status"
    if status.exists() and status.read_text().strip() == "0":
        cell.accepted += 1
    else:
        cell.refused.append("xdp_pass")
    return cell


def note_refused(cell: Cell, mode: str, hook: str, reason: str) -> None:
    known = KNOWN.get((cell.kernel, mode, hook))
    if known is not None:
        cell.known.append(known)
    else:
        cell.refused.append(f"{mode}: {hook}: {reason}" if hook else f"{mode}: {reason}")


def judge_hook(hook: dict[str, Any], mode: str, cell: Cell) -> None:
    """One that was loaded and could not be attached was accepted: attaching is no compiler's matter."""
    reason = hook["reason"] or ""
    if hook["state"] in ("available", "attached"):
        cell.accepted += 1
    elif hook["state"] == "refused" and "load: Operation not permitted" in reason:
        cell.not_permitted += 1
    elif hook["state"] == "refused" and "load: " in reason:
        note_refused(cell, mode, hook["id"], reason)
    elif hook["state"] == "refused":
        cell.accepted += 1


def ask_here(kept: Path) -> int:
    return subprocess.run([ROOT / "tests/kernels/accepts", kept], cwd=ROOT, check=False).returncode


def ask_guest(kernel: Kernel, kept: Path) -> int:
    root = fetch(kernel.suite, kernel.arch)
    if root is None:
        return 1
    command = "RESULTS=results tests/kernels/accepts /run/results"
    return start_guest(kernel, command, root, kept, Boot("compilers"))[0]


def ask(name: str, compilers: Sequence[str]) -> tuple[str, list[Cell]]:
    """The release of one kernel, and its column."""
    kept = KEPT / f"compilers-{name}"
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    status = ask_here(kept) if name == HERE else ask_guest(next(k for k in ASKED if k.name == name), kept)
    release = kept / "release"
    shown = release.read_text().strip() if release.exists() else name
    print(f"  KERNEL {name}: {shown}", flush=True)
    cells = [judge(kept, compiler, name) for compiler in compilers]
    for cell in cells:
        if status != 0 or not cell.accepted:
            cell.refused.append(f"nothing was loaded: see {kept.relative_to(ROOT)}")
    return shown, cells


def keep(found: dict[str, Any]) -> None:
    """Of these kernels in place of what is kept of them; the page of all."""
    path = PAGE_RESULTS / "compilers.json"
    found |= {"dates": dict.fromkeys(found["kernels"], found["made"])}
    if path.exists():
        before = json.loads(path.read_text())
        others = [cell for cell in before["cells"] if cell["kernel"] not in found["kernels"]]
        dates = before.get("dates", dict.fromkeys(before["kernels"], before["made"]))
        found = found | {"kernels": before["kernels"] | found["kernels"], "cells": others + found["cells"]}
        found |= {"dates": dates | found["dates"]}
    path.write_text(json.dumps(found, indent=1) + "\n")
    write_page()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Load what every clang made on every kernel.")
    known = [HERE, *(kernel.name for kernel in ASKED)]
    parser.add_argument("kernels", nargs="*", metavar="KERNEL", help=", ".join(known))
    parser.add_argument("--compilers", default="", help=f"some of {' '.join(map(str, SUITES))}")
    options = parser.parse_args(arguments)
    chosen = options.kernels or known
    versions = [int(word) for word in options.compilers.split()] or list(SUITES)
    unknown = [*(set(chosen) - set(known)), *map(str, set(versions) - set(SUITES))]
    if unknown:
        parser.error(f"{', '.join(unknown)}: not in the table")
    jobs = len(os.sched_getaffinity(0))
    roots = {version: root_of(version) for version in versions}
    for version in [version for version, root in roots.items() if root is None and SUITES[version] == "sid"]:
        print(f"  clang-{version}: sid has it no more: left out")
        del roots[version]
    # A kernel loads whatever is there.
    for built in BUILT.glob("clang-*"):
        if int(built.name[6:]) not in roots:
            shutil.rmtree(built)
    made = {version: root and build(root, version, jobs) for version, root in roots.items()}
    problems = [
        f"clang-{version}: not there, or does not build (above)" for version in made if not made[version]
    ]
    compilers = {f"clang-{version}": said for version, said in made.items() if said}
    with ThreadPoolExecutor(jobs) as pool:
        columns = dict(zip(chosen, pool.map(lambda name: ask(name, list(compilers)), chosen), strict=True))
    cells = [cell for _, column in columns.values() for cell in column]
    problems += [f"{cell.compiler} on {cell.kernel}: {one}" for cell in cells for one in cell.refused]
    found = {
        "made": datetime.now(UTC).strftime("%Y-%m-%d"),
        "vmlinux_h_of": platform.release(),
        "compilers": {
            name: {"version": said, "suite": SUITES[int(name[6:])]} for name, said in compilers.items()
        },
        "kernels": {name: release for name, (release, _) in columns.items()},
        "cells": [asdict(cell) for cell in cells],
    }
    print(f"\n{compiler_table(found)}")
    print("\n".join(problems))
    if not options.compilers:
        keep(found)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
