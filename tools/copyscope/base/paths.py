# SPDX-License-Identifier: GPL-2.0-only
"""Paths of files in the source tree or in an installed copy. This module opens no file."""

import contextlib
import os
import re
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent
# A wheel contains .output inside the package; a source tree has it next to tools/.
ROOT = PACKAGE if (PACKAGE / ".output").is_dir() else PACKAGE.parent.parent
# Directory of the tree that the Debian package installs (tools/dist.py).
DEBIAN_ROOT = Path("/usr/lib/copyscope")
OUTPUT = ROOT / ".output"
# An installed copy has no Makefile and no results/: results go to the current directory.
INSTALLED = not (ROOT / "Makefile").exists()
RESULTS = (Path() if INSTALLED else ROOT) / "results"
TRAFFIC = OUTPUT / "traffic"
COLLECTOR = OUTPUT / "collector"
XDP_OBJECT = OUTPUT / "xdp_pass.bpf.o"
# JSON file with the commit, machine and compiler of the built programs (written by tools/built_of.sh).
BUILT_OF = OUTPUT / "built-of.json"
# Name of an empty file in a directory of results that came with the source tree.
REFERENCE = ".reference"


def cache_directory() -> Path:
    """Return the directory for files that can be downloaded, built or measured again."""
    chosen_path = os.environ.get("COPYSCOPE_CACHE")
    if chosen_path:
        return Path(chosen_path)
    home = os.environ.get("XDG_CACHE_HOME")
    return (Path(home) if home else Path.home() / ".cache") / "copyscope"


def command() -> str:
    """Return the command that starts copyscope. In a tree or a tarball it is the path of bin/copyscope."""
    if ROOT == PACKAGE or ROOT.parent.name == "lib":  # a wheel, or an installation with a link on PATH
        return "copyscope"
    program = ROOT / "bin" / "copyscope"
    # The current directory may be elsewhere (ValueError), or have been removed (OSError).
    with contextlib.suppress(ValueError, OSError):
        program = program.relative_to(Path.cwd())
    return str(program)


def host_results(hostname: str, kernel: str) -> Path:
    """Return the directory for the results of a host under one kernel."""
    return RESULTS / re.sub(r"[^A-Za-z0-9._-]", "-", f"{hostname}-{kernel}")


def all_results(hostname: str) -> list[Path]:
    """Return the result directories of all kernels of a host, without reference results."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", hostname)
    directories = [RESULTS / name, *sorted(RESULTS.glob(f"{name}-*"))]
    return [path for path in directories if not is_reference(path)]


def is_reference(directory: Path) -> bool:
    """Return True for reference results: a host or sweep directory that came with the source tree."""
    return any((path / REFERENCE).exists() for path in (directory, directory.absolute().parent))
