"""docs/reference/machines.md, made of results/kernels, results/distributions and results/releases."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from document import bullets, table

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "results" / "kernels"
DISTRIBUTIONS = ROOT / "results" / "distributions"
RELEASES = ROOT / "results" / "releases"
PAGE = ROOT / "docs" / "reference" / "machines.md"

HEAD = """\
<!-- Made by `make check-compilers`, `check-distributions` and `check-dist`; the next run overwrites it. -->
# Machines: compilers, distributions and releases

Kernels have a page of their own: [kernels.md](kernels.md).
"""

COMPILERS = """\
## Compilers

`make check-compilers` (`tests/kernels/compilers.py`) builds every BPF object with each clang that Debian has,
and loads all of them on this kernel and, in QEMU, on others: programs accepted of programs asked for, over
six sets of options that have every branch between them. Not permitted: by a policy of that kernel (function
hooks), before the verifier looked at them. Known: what that kernel takes of no compiler (below). A dash: not
asked. The last column says which suite a compiler is from.

    make check-compilers                                  all of the table
    make check-compilers KERNELS=here COMPILERS="13 19"   some compilers, on this kernel alone
"""

DISTRIBUTION = """\
## Distributions

`make check-distributions` (`tests/distributions/check.py`) makes a root of each suite with debootstrap,
clones this tree into it and runs the README's two commands there, as a user who has sudo: `sudo make profile`
and `sudo make test`. noble is Ubuntu 24.04, the others are Debian's. Packages come from the distribution's
own archive, Python's from PyPI with the hashes of requirements*.txt. The kernel is this machine's. The first
command's seconds are with the installation of its packages; `brief` tests are the few that differ between
distributions. Of others (RHEL and its kin, Fedora, openSUSE, Arch) the command that would install packages is
checked (`tests/pure/test_deps.py`), and nothing is installed.

    make check-distributions                    all of the table
    make check-distributions SUITES=trixie      one of them
    make check-distributions EXTENT=brief       what CI runs: the first command, and a few tests
"""

RELEASE = """\
## Releases

`make check-dist` (`tests/dist/check_dist.py`) takes what `make dist` made to roots of distributions that have
no compiler. Each form is installed, looks at the machine (`doctor`), measures (`run`), watches a program that
sends 2,000 times 64 KiB, and is removed: it must attach the hooks that a build of this tree attaches, count
every byte, and leave no file. Seconds of an installation are without what it requires; MB are what it takes
with its Python packages, bytecode included. The kernel is this machine's. In guests (QEMU, emulated) the
tarball does the same. jammy is Ubuntu 22.04, whose Python 3.10 is refused; its own python3.11 is then used.

    make check-dist KEEP=--keep                      all of the table
    make check-dist SUITES=trixie KERNELS="5.10"     some of it; writes nothing
"""


def cell_of(cell: Mapping[str, Any] | None) -> str:
    if cell is None:
        return "-"
    asked = cell["accepted"] + len(cell["refused"])
    shown = f"{cell['accepted']} of {asked}"
    shown += f"; {len(cell['known'])} known" if cell["known"] else ""
    return f"{shown}; {cell['not_permitted']} not permitted" if cell["not_permitted"] else shown


def compiler_table(found: Mapping[str, Any]) -> str:
    """A row for each compiler, a column for each kernel."""
    cells = {(cell["compiler"], cell["kernel"]): cell for cell in found["cells"]}
    rows = [["clang", *found["kernels"].values(), "from"]]
    for name, compiler in found["compilers"].items():
        columns = [cell_of(cells.get((name, kernel))) for kernel in found["kernels"]]
        rows.append([compiler["version"], *columns, compiler["suite"]])
    return table(rows)


def distribution_table(found: Sequence[Mapping[str, Any]]) -> str:
    programs = ("release", "clang", "libbpf", "bpftool", "python", "perf")
    counts = ("passed", "failed", "skipped")
    rows = [["suite", *programs, "profile", "test", *counts, "tests"]]
    for one in found:
        seconds = (f"{one['profile_s']:.0f} s", f"{one['test_s']:.0f} s")
        versions = (one["versions"][name] for name in programs)
        tests = (str(one["tests"][word]) for word in counts)
        rows.append([one["suite"], *versions, *seconds, *tests, one["extent"]])
    return table(rows)


def release_table(found: Sequence[Mapping[str, Any]]) -> str:
    """A row for each root and each guest."""
    forms = ("wheel", "deb", "tarball")
    rows = [["where", "Python", *forms, "result"]]
    for one in found:
        made = (
            [_of_form(one["forms"][form]) for form in forms] if "forms" in one else ["-", "-", _of_form(one)]
        )
        result = f"{len(one['problems'])} problems" if one["problems"] else "ok"
        rows.append([one["where"], one.get("python", "-"), *made, result])
    return table(rows)


def _of_form(one: Mapping[str, Any]) -> str:
    installed = f"{one['install_s']} s, {one['size_mb']} MB; " if "install_s" in one else ""
    return installed + (f"run {one['run_s']} s" if "run_s" in one else "programs alone")


def page() -> str:
    parts = [HEAD]
    compilers = RESULTS / "compilers.json"
    if compilers.exists():
        found = json.loads(compilers.read_text())
        made = f"Made on {found['made']}, with vmlinux.h of {found['vmlinux_h_of']}.\n"
        made += "".join(
            f"\nThe column of {found['kernels'][kernel]} is of {date}, with the programs of then.\n"
            for kernel, date in found.get("dates", {}).items()
            if date != found["made"]
        )
        known = sorted({reason for cell in found["cells"] for reason in cell["known"]})
        parts += [COMPILERS, compiler_table(found), made + (f"\nKnown:\n\n{bullets(known)}" if known else "")]
    distributions = [json.loads(path.read_text()) for path in sorted(DISTRIBUTIONS.glob("*.json"))]
    if distributions:
        made = "".join(
            f"- {one['suite']}: {one['made']}, on {one['kernel']}, {one['processors']} CPU\n"
            for one in distributions
        )
        problems = [problem for one in distributions for problem in one["problems"]]
        parts += [DISTRIBUTION, distribution_table(distributions), made]
        parts += ["Problems:\n", bullets(problems)] if problems else []
    releases = [json.loads(path.read_text()) for path in sorted(RELEASES.glob("*.json"))]
    if releases:
        made = "".join(f"- {one['where']}: {one['made']}, on {one['kernel']}\n" for one in releases)
        packed = releases[-1]["packed"].items()
        made += "\nPacked: " + ", ".join(f"{name} {size / 1e6:.1f} MB" for name, size in packed) + ".\n"
        problems = [f"{one['where']}: {problem}" for one in releases for problem in one["problems"]]
        parts += [RELEASE, release_table(releases), made]
        parts += ["Problems:\n", bullets(problems)] if problems else []
    return "\n".join(parts)


def write_page() -> None:
    PAGE.write_text(page())
