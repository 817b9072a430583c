# SPDX-License-Identifier: GPL-2.0-only
"""docs/reference/machines.md, made of results/kernels, results/distributions and results/releases."""

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).resolve().parents[1] / "pages"))

import sentences
from document import bullets, table

ROOT = Path(__file__).resolve().parent.parent.parent
RESULTS = ROOT / "results" / "kernels"
DISTRIBUTIONS = ROOT / "results" / "distributions"
RELEASES = ROOT / "results" / "releases"
PAGE = ROOT / "docs" / "reference" / "machines.md"

HEAD = """\
<!-- Made by `make check-compilers`, `check-distributions` and `check-dist`; the next run overwrites it. -->
# Machines: compilers, distributions and releases

This page lists which compilers, distributions and packages have been tried.
[Kernels](kernels.md) have a page of their own.
"""

COMPILERS = """\
## Compilers

    make check-compilers                                  all of the table
    make check-compilers KERNELS=here COMPILERS="13 19"   some compilers, on this kernel alone

Every BPF program is built with each clang of Debian, and loaded on each kernel. This is repeated
with six sets of options, so that every branch is loaded. A cell has the number of programs that the
kernel accepted.

- *not permitted*: a policy of the kernel forbids function hooks.
- *known*: the kernel refused the program for a reason below, with any compiler.
- A dash means that the combination was not tried.
"""

DISTRIBUTION = """\
## Distributions

    make check-distributions SUITES=trixie      one suite; without SUITES all
    make check-distributions EXTENT=brief       as in CI: `make profile` and a few tests

Each suite is installed in a directory (debootstrap), and runs on this machine's kernel. In a clone
of the repository, a user with sudo runs `sudo make profile` and `sudo make test`. The time of
`profile` includes the installation of packages. On RHEL, Fedora, openSUSE and Arch nothing
runs: a test only checks the names of their packages (`tests/pure/test_deps.py`).
"""

RELEASE = """\
## Releases

    make check-dist KEEP=--keep                      all of the table
    make check-dist SUITES=trixie KERNELS="5.10"     some rows; writes nothing

Each package of `make dist` is installed in a suite that has no compiler, on
this machine's kernel. The package must run
`doctor`, measure, and count every byte of a watched program. After its removal, no file may be left.
Rows that begin with "Linux" are QEMU guests, which test the tarball. The time is that of the
installation without dependencies. The size includes the Python packages. The suite jammy is Ubuntu
22.04 with its own python3.11.
"""


def cell_of(cell: Mapping[str, Any] | None) -> str:
    if cell is None:
        return "-"
    asked = cell["accepted"] + len(cell["refused"])
    shown = f"{cell['accepted']} of {asked}"
    shown += f"; {len(cell['known'])} known" if cell["known"] else ""
    return f"{shown}; {cell['not_permitted']} not permitted" if cell["not_permitted"] else shown


def compiler_table(results: Mapping[str, Any]) -> str:
    """Return a table with a column for each kernel. Compilers with equal results share a row."""
    cells = {(cell["compiler"], cell["kernel"]): cell for cell in results["cells"]}
    versions: dict[tuple[str, ...], list[str]] = {}
    for name, compiler in results["compilers"].items():
        columns = (cell_of(cells.get((name, kernel))) for kernel in results["kernels"])
        versions.setdefault(tuple(columns), []).append(compiler["version"])
    rows = [[", ".join(names), *columns] for columns, names in versions.items()]
    return table([["clang", *results["kernels"].values()], *rows])


def distribution_table(results: Sequence[Mapping[str, Any]]) -> str:
    programs = ("release", "clang", "libbpf", "bpftool", "python", "perf")
    counts = ("passed", "failed", "skipped")
    rows = [["suite", *programs, "profile", "test", *counts, "tests"]]
    for result in results:
        seconds = (f"{result['profile_s']:.0f} s", f"{result['test_s']:.0f} s")
        versions = (result["versions"][name] for name in programs)
        tests = (str(result["tests"][word]) for word in counts)
        rows.append([result["suite"], *versions, *seconds, *tests, result["extent"]])
    return table(rows)


def release_table(results: Sequence[Mapping[str, Any]]) -> str:
    """A row for each root and each guest."""
    forms = ("wheel", "deb", "tarball")
    rows = [["where", "Python", *forms, "result"]]
    for row in results:
        form_cells = (
            [_of_form(row["forms"][form]) for form in forms] if "forms" in row else ["-", "-", _of_form(row)]
        )
        result = f"{len(row['problems'])} problems" if row["problems"] else "ok"
        rows.append([row["where"], row.get("python", "-"), *form_cells, result])
    return table(rows)


def _of_form(form: Mapping[str, Any]) -> str:
    if "install_s" in form:
        return f"{form['install_s']} s, {form['size_mb']} MB"
    return "tried" if "run_s" in form else "tried without Python"


def made_on(rows: Iterable[tuple[str, str]]) -> str:
    """Return a bullet for each date and machine, with names only if there are several.

    rows: pairs of a name, and its date and machine
    """
    names: dict[str, list[str]] = {}
    for name, circumstances in rows:
        names.setdefault(circumstances, []).append(name)
    if len(names) == 1:
        return f"- {', '.join(names)}\n"
    return "".join(f"- {circumstances}: {', '.join(group)}\n" for circumstances, group in names.items())


def page() -> str:
    parts = [HEAD]
    compilers = RESULTS / "compilers.json"
    if compilers.exists():
        results = json.loads(compilers.read_text())
        circumstances = f"Made on {results['made']}, with vmlinux.h of {results['vmlinux_h_of']}.\n"
        circumstances += "".join(
            f"\nThe column of {results['kernels'][kernel]} is of {date}, with the programs of then.\n"
            for kernel, date in results.get("dates", {}).items()
            if date != results["made"]
        )
        known_reasons = sorted({reason for cell in results["cells"] for reason in cell["known"]})
        parts += [
            COMPILERS,
            compiler_table(results),
            circumstances + (f"\nKnown:\n\n{bullets(known_reasons)}" if known_reasons else ""),
        ]
    distributions = [json.loads(path.read_text()) for path in sorted(DISTRIBUTIONS.glob("*.json"))]
    if distributions:
        circumstances = made_on(
            (row["suite"], f"{row['made']}, on {row['kernel']}, {row['processors']} CPU")
            for row in distributions
        )
        problems = [problem for row in distributions for problem in row["problems"]]
        parts += [DISTRIBUTION, distribution_table(distributions), circumstances]
        parts += ["Problems:\n", bullets(problems)] if problems else []
    releases = [json.loads(path.read_text()) for path in sorted(RELEASES.glob("*.json"))]
    if releases:
        circumstances = made_on((row["where"], f"{row['made']}, on {row['kernel']}") for row in releases)
        packed = releases[-1]["packed"].items()
        circumstances += "".join(f"- {name}: {size / 1e6:.1f} MB\n" for name, size in packed)
        problems = [f"{row['where']}: {problem}" for row in releases for problem in row["problems"]]
        parts += [RELEASE, release_table(releases), circumstances]
        parts += ["Problems:\n", bullets(problems)] if problems else []
    return sentences.rewrite("\n".join(parts))


def write_page() -> None:
    PAGE.write_text(page())
