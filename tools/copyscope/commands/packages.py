# SPDX-License-Identifier: GPL-2.0-only
"""Copy the pinned Python packages from this tree's environment to an installation, for `make install`."""

import re
import shutil
import sys
from importlib.metadata import Distribution
from pathlib import Path
from sysconfig import get_path

from copyscope.base import paths
from copyscope.base.errors import RunError
from copyscope.commands import entry

REQUIREMENTS = ("requirements/run.txt", "requirements/report.txt", "requirements/serve.txt")


def main(argv: list[str]) -> int:
    """Copy the packages to the site-packages directory that the only argument names.

    Exit status: 0 copied, 1 failed.
    """
    return entry.run("packages", lambda: _copy_packages(Path(argv[0])))


def pinned_packages() -> list[str]:
    """Return the names of the packages that runs, reports and metrics need, excluding packages for tests."""
    texts = [(paths.ROOT / name).read_text(encoding="utf-8") for name in REQUIREMENTS]
    return sorted({name for text in texts for name in re.findall(r"^([\w.-]+)==", text, re.MULTILINE)})


def _copy_packages(site_packages: Path) -> int:
    """Copy the files of every pinned package to a site-packages directory, and return the exit status."""
    for name in pinned_packages():
        # Search .venv only: a package borrowed from the distribution (tools/pinned.sh) has another version.
        package = next(iter(Distribution.discover(name=name, path=[get_path("purelib")])), None)
        if package is None:
            raise RunError(f"{name}: not in .venv; run rm .venv/.ready, then make .venv/.ready-report")
        for file in package.files or ():
            # Files outside of site-packages are scripts, which contain the path of their interpreter.
            if ".." not in file.parts:
                copy = site_packages / file
                copy.parent.mkdir(parents=True, exist_ok=True)
                # copy2() keeps the modification time: bytecode is valid only for its source of the same time.
                shutil.copy2(str(file.locate()), copy)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
