# SPDX-License-Identifier: GPL-2.0-only
"""Use a release (`make dist`) as its users do: in roots without a compiler, and on other kernels.

    make check-dist KEEP=--keep              all of SUITES and KERNELS; writes machines.md
    make check-dist SUITES=trixie KERNELS=   one suite; writes nothing

In a root each form is installed, runs doctor, measures, watches a program with known sends, and is removed.
It must attach the hooks that this tree attaches, count every byte, and leave no file. The Debian package also
simulates, and loads its programs without CAP_SYS_ADMIN. Where Python is too old, each form must say so. In a
guest, the tarball is compared with this tree's build.
"""

import argparse
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from guests import GUESTS, check_guest
from machines import RELEASES, release_table, write_page
from said import Hooks, document, facts, hooks_of, measured

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
DIST = ROOT / ".output" / "dist"
SUITES = ("bookworm", "trixie", "sid", "jammy", "noble")
FORMS = ("wheel", "deb", "tarball")
# Steps of tests/dist/inside that must succeed.
STEPS, STEPS_OF_DEB = ("doctor", "run", "watch", "remove"), ("simulate", "load")
# Maximum sizes for one architecture: of the packed file, and installed with its dependencies.
PACKED_MB, INSTALLED_MB = 15, 40
# Newest glibc of the wheel's tag, manylinux_2_17 (tools/wheel.py). Debian 12 has 2.36, RHEL 9 has 2.34.
GLIBC_MAX = (2, 17)
# Cache of this user, with the kernel that `simulate` boots.
CACHE = Path.home() / ".cache" / "copyscope"


def check_suite(suite: str, release: Path, hooks: Hooks) -> dict[str, Any]:
    """Check all forms in one root. Return the results with their problems."""
    print(f"  ROOT  {suite}", flush=True)
    with tempfile.TemporaryDirectory(prefix="copyscope-dist-") as temporary:
        results = Path(temporary)
        results.chmod(0o777)
        shutil.copytree(release, results / "release")
        shutil.copytree(CACHE / "guests" / "6.12", results / "cache" / "guests" / "6.12")
        subprocess.run(["chmod", "--recursive", "a+rwX", results / "cache"], check=True)
        for name in ("inside", "sender.py"):
            shutil.copy(HERE / name, results)
        argv = ["setpriv", "--pdeathsig", "KILL", str(ROOT / "tests" / "distributions" / "root.sh"), suite]
        argv += [f"cd && sh /results/inside {' '.join(FORMS)}"]
        done = subprocess.run(argv, env={**os.environ, "COPYSCOPE_RESULTS": temporary}, check=False)
        root_facts = facts(results / "said")
        problems = [] if done.returncode == 0 else [f"the root ended with status {done.returncode}"]
        if problems:
            show(results)
        if "compiler" in root_facts:
            problems.append(f"it has a compiler: {root_facts['compiler']}")
        problems += refusals(results / "refused")
        rows = {form: check_form(results / form, hooks) for form in FORMS}
        for form, row in rows.items():
            if row["problems"]:
                print(f"  {suite}, {form}: {row['problems']}")
                show(results / form)
    problems += [f"{form}: {problem}" for form, row in rows.items() for problem in row["problems"]]
    return {"where": suite, "python": root_facts.get("python", "?"), "forms": rows, "problems": problems}


def check_form(directory: Path, hooks: Hooks) -> dict[str, Any]:
    """Read the results of one form, from its installation to its removal."""
    form_facts = facts(directory / "said")
    problems = [
        f"{step}: status {form_facts.get(step, 'unknown')}"
        for step in (*STEPS, *(STEPS_OF_DEB if directory.name == "deb" else ()))
        if form_facts.get(step) != "0"
    ]
    commit = ask("git", "rev-parse", "HEAD")[:12]
    if f"commit {commit};" not in form_facts.get("version", ""):
        problems.append(f"--version: {form_facts.get('version')}: not of commit {commit}")
    if float(form_facts.get("size_mb", "inf")) > INSTALLED_MB:
        problems.append(f"{form_facts.get('size_mb')} MB installed, more than {INSTALLED_MB}")
    problems += measured(directory, hooks)
    left_files = (
        (directory / "left.txt").read_text().split() if (directory / "left.txt").exists() else ["unknown"]
    )
    problems += [f"left behind: {path}" for path in left_files[:5]]
    return {
        "problems": problems,
        **{key: form_facts.get(key, "?") for key in ("install_s", "size_mb", "run_s")},
    }


def refusals(directory: Path) -> Iterable[str]:
    """Yield a problem for each form that does not refuse a Python that is too old."""
    if not directory.exists():
        return
    for form, expected in (("tarball", "3.11 or newer is needed"), ("wheel", "requires a different Python")):
        text = (directory / f"{form}.txt").read_text()
        if facts(directory / "said").get(form) in (None, "0") or expected not in text:
            yield f"{form}: an old Python is not refused by `{expected}`: {text.strip()[-200:]}"


def hooks_here() -> Hooks:
    """Return the hooks that this tree, built by this machine's compiler, attaches."""
    with tempfile.TemporaryDirectory(prefix="copyscope-dist-") as directory:
        argv = ["bin/copyscope", "run", "zero_copy", "--quiet", "--duration", "1", "--json"]
        argv.append(f"{directory}/run.json")
        subprocess.run(argv, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        # This fetches the kernel that each root simulates.
        simulate = ["bin/copyscope", "simulate", "one_copy", "--size", "4K", "--seeds", "1"]
        subprocess.run(simulate, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        record = document(Path(directory, "run.json"))
    assert record is not None
    return hooks_of(record)


def newer_symbols(wheel: Path) -> Iterable[str]:
    """Yield a problem for each program of a wheel that needs a newer glibc than its tag allows."""
    with tempfile.TemporaryDirectory(prefix="copyscope-dist-") as directory:
        shutil.unpack_archive(wheel, directory, "zip")
        for path in sorted(path for path in Path(directory).rglob(".output/**/*") if path.is_file()):
            argv = ("objdump", "--dynamic-syms", path)
            symbols = subprocess.run(argv, capture_output=True, text=True, check=False).stdout
            versions = {tuple(map(int, text.split("."))) for text in re.findall(r"GLIBC_([\d.]+)", symbols)}
            if max(versions, default=GLIBC_MAX) > GLIBC_MAX:
                needed = ".".join(map(str, max(versions)))
                yield f"{path.name} needs glibc {needed}: build the release on Debian 12"


def show(directory: Path) -> None:
    """Print the end of each text file in a directory."""
    for path in sorted(directory.glob("*.txt")):
        print(f"---- {directory.name}/{path.name}\n{path.read_text(errors='replace')[-2000:]}", flush=True)


def ask(*argv: str) -> str:
    return subprocess.run(argv, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def release_files() -> Path:
    """Copy the three forms for this architecture to a directory, and check their sizes."""
    machine, debian = os.uname().machine, ask("dpkg", "--print-architecture")
    directory = ROOT / ".output" / "dist.d" / "checked"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    for pattern in (f"*_{machine}.whl", f"*_{debian}.deb", f"*-{machine}.tar.gz"):
        (file,) = DIST.glob(pattern)
        shutil.copy(file, directory)
        assert file.stat().st_size < PACKED_MB * 1e6, f"{file}: more than {PACKED_MB} MB"
    problems = [problem for wheel in directory.glob("*.whl") for problem in newer_symbols(wheel)]
    assert not problems, "; ".join(problems)
    return directory


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="Check a release in other roots, and on other kernels.")
    parser.add_argument("--suites", nargs="*", default=SUITES, help=", ".join(SUITES))
    parser.add_argument("--kernels", nargs="*", default=GUESTS, help=", ".join(GUESTS))
    parser.add_argument("--keep", action="store_true", help="write results/releases, and the page of it")
    options = parser.parse_args(arguments)
    # On SIGTERM, exit normally, so that temporary directories are removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    release = release_files()
    hooks = hooks_here() if options.suites else {}
    results: list[dict[str, Any]] = []
    for name in (*options.suites, *options.kernels):
        result = check_guest(name, DIST) if name in GUESTS else check_suite(name, release, hooks)
        results.append(result)
        if options.keep:
            keep(name, result, release)
    print(f"\n{release_table(results)}")
    problems = [f"{result['where']}: {problem}" for result in results for problem in result["problems"]]
    print("\n".join(problems))
    return 1 if problems else 0


def keep(name: str, result: Mapping[str, Any], release: Path) -> None:
    """Write the result of one root or guest, with the sizes of the packed files, and the page."""
    packed = {path.name: path.stat().st_size for path in sorted(release.iterdir())}
    circumstances = {
        "made": datetime.now(UTC).strftime("%Y-%m-%d"),
        "kernel": os.uname().release,
        "packed": packed,
    }
    RELEASES.mkdir(parents=True, exist_ok=True)
    (RELEASES / f"{name}.json").write_text(json.dumps({**circumstances, **result}, indent=1) + "\n")
    write_page()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
