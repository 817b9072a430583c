"""The released programs in guests with other kernels (QEMU), beside this tree's own build."""

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
    """One kernel: what the tarball for its processor did, with its problems."""
    print(f"  GUEST {name}", flush=True)
    kernel = next(one for one in KERNELS if one.name == name)
    kept = ROOT / ".output" / "dist.d" / f"guest-{name}"
    shutil.rmtree(kept, ignore_errors=True)
    kept.mkdir(parents=True)
    root = fetch(kernel.suite, kernel.arch)
    if root is None:
        return {"where": f"Linux {name}", "problems": ["its kernel cannot be downloaded (above)"]}
    (tarball,) = dist.glob(f"*-{MACHINES[kernel.arch]}.tar.gz")
    with tarfile.open(tarball) as archive:
        archive.extractall(kept, filter="data")
    tree = next(kept.glob("copyscope-*"))
    if kernel.arch == "amd64":
        problems = [*boot(root, kept, f"tests/dist/guest results {tree}"), *beside_the_tree(kept)]
    else:
        problems = list(without_python(kernel, root, kept, tree))
    release = (kept / "release").read_text().strip() if (kept / "release").exists() else name
    return {"where": f"Linux {release}", **facts(kept / "said"), "problems": problems}


def boot(root: str, kept: Path, command: str, **more: str) -> Iterable[str]:
    """From power-on to power-off; yields what went wrong."""
    argv = [str(ROOT / "tests" / "kernels" / "boot.sh"), root, command]
    argv += ["-fsdev", f"local,id=results,path={kept},security_model=none,multidevs=remap"]
    argv += ["-device", "virtio-9p-pci,fsdev=results,mount_tag=results"]
    environment = {**os.environ, "COPYSCOPE_GUEST_TIMEOUT_S": TIMEOUT_S, **more}
    with (kept / "log.txt").open("w") as log:
        done = subprocess.run(argv, cwd=ROOT, env=environment, stdout=log, stderr=log, check=False)
    if done.returncode != 0:
        yield f"the guest ended with status {done.returncode}: see {kept}/log.txt"


def beside_the_tree(kept: Path) -> Iterable[str]:
    """The same hooks as of this tree's build, in the run and of all that can be probed."""
    probes = [document(kept / f"probe-{whose}.json") for whose in ("tree", "tarball")]
    ours = document(kept / "run-tree.json")
    if probes[0] is None or probes[1] is None or ours is None:
        yield "what this tree's build says is missing"
        return
    if hooks_of(probes[0]) != hooks_of(probes[1]):
        yield "other hooks than this tree's"
    yield from measured(kept, hooks_of(ours))


def without_python(kernel: Kernel, root: str, kept: Path, tree: Path) -> Iterable[str]:
    """Another processor's guest has no Python: the released programs in the place of those that were built for it."""
    if not build_cross(kernel.arch, root):
        yield f"the guest of {kernel.arch} cannot be built (above)"
        return
    shutil.copytree(tree_of(kernel.arch), kept / "guest", symlinks=True)
    for program in ("collector", "traffic"):
        shutil.copy(tree / ".output" / program, kept / "guest" / "guest")
    arm = {"COPYSCOPE_GUEST_ARCH": kernel.arch, "COPYSCOPE_GUEST_TREE": str(kept / "guest")}
    yield from boot(root, kept, "/guest/inside results", **arm)
    judge_outside(kept)
    lines = (kept / "tests.jsonl").read_text().splitlines() if (kept / "tests.jsonl").exists() else []
    rows = [json.loads(line) for line in lines]
    if not any(row["outcome"] == "passed" for row in rows):
        yield "nothing passed"
    yield from (f"{row['id']}: {row['said'][:200]}" for row in rows if row["outcome"] == "failed")
