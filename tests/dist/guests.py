# SPDX-License-Identifier: GPL-2.0-only
"""Run the released programs in guests with other kernels (QEMU), and compare them with this tree's build."""

import json
import os
import shutil
import subprocess
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from matrix import KERNELS, Kernel, build_cross, fetch, judge_outside, tree_of
from said import document, facts, hooks_of, measured

ROOT = Path(__file__).resolve().parent.parent.parent
GUESTS = ("5.10", "6.1", "6.12", "6.12-arm64")
MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
TIMEOUT_S = "1200"


def check_guest(name: str, dist: Path) -> dict[str, Any]:
    """Check the tarball of a kernel's architecture. Return the results with their problems."""
    print(f"  GUEST {name}", flush=True)
    kernel = next(row for row in KERNELS if row.name == name)
    directory = ROOT / ".output" / "dist.d" / f"guest-{name}"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    root = fetch(kernel.suite, kernel.arch)
    if root is None:
        return {"where": f"Linux {name}", "problems": ["its kernel cannot be downloaded (above)"]}
    (tarball,) = dist.glob(f"*-{MACHINES[kernel.arch]}.tar.gz")
    with tarfile.open(tarball) as archive:
        archive.extractall(directory, filter="data")
    tree = next(directory.glob("copyscope-*"))
    if kernel.arch == "amd64":
        problems = [*boot(root, directory, f"tests/dist/guest results {tree}"), *beside_the_tree(directory)]
    else:
        problems = list(without_python(kernel, root, directory, tree))
    release = (directory / "release").read_text().strip() if (directory / "release").exists() else name
    return {"where": f"Linux {release}", **facts(directory / "said"), "problems": problems}


def boot(root: str, directory: Path, command: str, **variables: str) -> Iterable[str]:
    """Run a guest from power-on to power-off. Yield its problem, if any."""
    argv = [str(ROOT / "tests" / "kernels" / "boot.sh"), root, command]
    argv += ["-fsdev", f"local,id=results,path={directory},security_model=none,multidevs=remap"]
    argv += ["-device", "virtio-9p-pci,fsdev=results,mount_tag=results"]
    environment = {**os.environ, "COPYSCOPE_GUEST_TIMEOUT_S": TIMEOUT_S, **variables}
    with (directory / "log.txt").open("w") as log:
        done = subprocess.run(argv, cwd=ROOT, env=environment, stdout=log, stderr=log, check=False)
    if done.returncode != 0:
        yield f"the guest ended with status {done.returncode}: see {directory}/log.txt"


def beside_the_tree(directory: Path) -> Iterable[str]:
    """Yield a problem if the tarball's hooks differ from those of this tree's build, probed or in the run."""
    probes = [document(directory / f"probe-{build}.json") for build in ("tree", "tarball")]
    tree_record = document(directory / "run-tree.json")
    if probes[0] is None or probes[1] is None or tree_record is None:
        yield "the output of this tree's build is missing"
        return
    if hooks_of(probes[0]) != hooks_of(probes[1]):
        yield "other hooks than this tree's"
    yield from measured(directory, hooks_of(tree_record))


def without_python(kernel: Kernel, root: str, directory: Path, tree: Path) -> Iterable[str]:
    """Run the released programs in a guest of another architecture, which has no Python.

    Yield the problems.
    """
    if not build_cross(kernel.arch, root):
        yield f"the guest of {kernel.arch} cannot be built (above)"
        return
    shutil.copytree(tree_of(kernel.arch), directory / "guest", symlinks=True)
    for program in ("collector", "traffic"):
        shutil.copy(tree / ".output" / program, directory / "guest" / "guest")
    arm_environment = {"COPYSCOPE_GUEST_ARCH": kernel.arch, "COPYSCOPE_GUEST_TREE": str(directory / "guest")}
    yield from boot(root, directory, "/guest/inside results", **arm_environment)
    judge_outside(directory)
    lines = (
        (directory / "tests.jsonl").read_text().splitlines() if (directory / "tests.jsonl").exists() else []
    )
    rows = [json.loads(line) for line in lines]
    if not any(row["outcome"] == "passed" for row in rows):
        yield "nothing passed"
    yield from (f"{row['id']}: {row['said'][:200]}" for row in rows if row["outcome"] == "failed")
