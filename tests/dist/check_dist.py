"""A release (`make dist`) where it is used: roots of distributions without a compiler, and other kernels.

    make check-dist KEEP=--keep              all of SUITES and KERNELS, and what came of it into machines.md
    make check-dist SUITES=trixie KERNELS=   one of them; prints, and writes nothing

In a root each form is installed, looks at the machine, measures, watches a program whose sends are known, and is
removed: it attaches the hooks that this tree attaches, counts every byte, and leaves no file. Where Python is too
old, that is said. In a guest the tarball does the same beside this tree.
"""

import argparse
import json
import os
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
# Of one machine: packed, and as it lies there with what it requires.
PACKED_MB, INSTALLED_MB = 15, 40


def check_suite(suite: str, release: Path, hooks: Hooks) -> dict[str, Any]:
    """One root, all forms: what came of it, with its problems."""
    print(f"  ROOT  {suite}", flush=True)
    with tempfile.TemporaryDirectory(prefix="copyscope-dist-") as made:
        results = Path(made)
        results.chmod(0o777)
        shutil.copytree(release, results / "release")
        for name in ("inside", "sender.py"):
            shutil.copy(HERE / name, results)
        argv = ["setpriv", "--pdeathsig", "KILL", str(ROOT / "tests" / "distributions" / "root.sh"), suite]
        argv += [f"cd && sh /results/inside {' '.join(FORMS)}"]
        done = subprocess.run(argv, env={**os.environ, "COPYSCOPE_RESULTS": made}, check=False)
        said = facts(results / "said")
        problems = [] if done.returncode == 0 else [f"the root ended with status {done.returncode}"]
        if problems:
            show(results)
        if "compiler" in said:
            problems.append(f"it has a compiler: {said['compiler']}")
        problems += refusals(results / "refused")
        rows = {form: check_form(results / form, hooks) for form in FORMS}
        for form, row in rows.items():
            if row["problems"]:
                print(f"  {suite}, {form}: {row['problems']}")
                show(results / form)
    problems += [f"{form}: {one}" for form, row in rows.items() for one in row["problems"]]
    return {"where": suite, "python": said.get("python", "?"), "forms": rows, "problems": problems}


def check_form(said: Path, hooks: Hooks) -> dict[str, Any]:
    """What one form did, from its installation to its removal."""
    found = facts(said / "said")
    problems = [
        f"{step}: status {found.get(step, 'unknown')}"
        for step in ("doctor", "run", "watch", "remove")
        if found.get(step) != "0"
    ]
    commit = ask("git", "rev-parse", "HEAD")[:12]
    if f"commit {commit};" not in found.get("version", ""):
        problems.append(f"--version: {found.get('version')}: not of commit {commit}")
    if float(found.get("size_mb", "inf")) > INSTALLED_MB:
        problems.append(f"{found.get('size_mb')} MB installed, more than {INSTALLED_MB}")
    problems += measured(said, hooks)
    left = (said / "left.txt").read_text().split() if (said / "left.txt").exists() else ["unknown"]
    problems += [f"left behind: {path}" for path in left[:5]]
    return {"problems": problems, **{key: found.get(key, "?") for key in ("install_s", "size_mb", "run_s")}}


def refusals(said: Path) -> Iterable[str]:
    """What was said where Python is too old."""
    if not said.exists():
        return
    for form, words in (("tarball", "3.11 or newer is needed"), ("wheel", "requires a different Python")):
        text = (said / f"{form}.txt").read_text()
        if facts(said / "said").get(form) in (None, "0") or words not in text:
            yield f"{form}: an old Python is not refused by `{words}`: {text.strip()[-200:]}"


def hooks_here() -> Hooks:
    """Those that this tree, built by this machine's compiler, attaches."""
    with tempfile.TemporaryDirectory(prefix="copyscope-dist-") as made:
        argv = ["bin/copyscope", "run", "zero_copy", "--quiet", "--duration", "1", "--json"]
        argv.append(f"{made}/run.json")
        subprocess.run(argv, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        found = document(Path(made, "run.json"))
    assert found is not None
    return hooks_of(found)


def show(said: Path) -> None:
    for path in sorted(said.glob("*.txt")):
        print(f"---- {said.name}/{path.name}\n{path.read_text(errors='replace')[-2000:]}", flush=True)


def ask(*argv: str) -> str:
    return subprocess.run(argv, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def release_files() -> Path:
    """The three forms for this machine, in a directory of their own; none is too large."""
    machine, debian = os.uname().machine, ask("dpkg", "--print-architecture")
    made = ROOT / ".output" / "dist.d" / "checked"
    shutil.rmtree(made, ignore_errors=True)
    made.mkdir(parents=True)
    for pattern in (f"*_{machine}.whl", f"*_{debian}.deb", f"*-{machine}.tar.gz"):
        (file,) = DIST.glob(pattern)
        shutil.copy(file, made)
        assert file.stat().st_size < PACKED_MB * 1e6, f"{file}: more than {PACKED_MB} MB"
    return made


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description="A release in other roots, and on other kernels.")
    parser.add_argument("--suites", nargs="*", default=SUITES, help=", ".join(SUITES))
    parser.add_argument("--kernels", nargs="*", default=GUESTS, help=", ".join(GUESTS))
    parser.add_argument("--keep", action="store_true", help="write results/releases, and the page of it")
    options = parser.parse_args(arguments)
    # So that what was made for the results is removed.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    release = release_files()
    hooks = hooks_here() if options.suites else {}
    found: list[dict[str, Any]] = []
    for name in (*options.suites, *options.kernels):
        one = check_guest(name, DIST) if name in GUESTS else check_suite(name, release, hooks)
        found.append(one)
        if options.keep:
            keep(name, one, release)
    print(f"\n{release_table(found)}")
    problems = [f"{one['where']}: {problem}" for one in found for problem in one["problems"]]
    print("\n".join(problems))
    return 1 if problems else 0


def keep(name: str, one: Mapping[str, Any], release: Path) -> None:
    """As soon as it is there, with the sizes of what was tried."""
    packed = {path.name: path.stat().st_size for path in sorted(release.iterdir())}
    made = {"made": datetime.now(UTC).strftime("%Y-%m-%d"), "kernel": os.uname().release, "packed": packed}
    RELEASES.mkdir(parents=True, exist_ok=True)
    (RELEASES / f"{name}.json").write_text(json.dumps({**made, **one}, indent=1) + "\n")
    write_page()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
