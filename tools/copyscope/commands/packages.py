"""Copies the pinned Python packages of the environment of this tree to another one, for make."""

import re
import shutil
import sys
from importlib.metadata import Distribution
from pathlib import Path
from sysconfig import get_path

from copyscope import paths
from copyscope.commands import entry
from copyscope.errors import RunError

REQUIRED = ("requirements.txt", "requirements-report.txt", "requirements-serve.txt")


def main(argv: list[str]) -> int:
    """`SITE_PACKAGES`. Exit status: 0 copied, 1 failed."""
    return entry.run(lambda: _copy(Path(argv[0])))


def pinned() -> list[str]:
    """The packages of `make`, of reports and of metrics, without those of tests."""
    texts = [(paths.ROOT / name).read_text(encoding="utf-8") for name in REQUIRED]
    return sorted({name for text in texts for name in re.findall(r"^([\w.-]+)==", text, re.MULTILINE)})


def _copy(target: Path) -> int:
    for name in pinned():
        # In the environment itself: what a distribution has lent it (tools/pinned.sh) has other versions.
        found = next(iter(Distribution.discover(name=name, path=[get_path("purelib")])), None)
        if found is None:
            raise RunError(f"{name}: not in .venv: rm .venv/.ready, then make .venv/.ready-report")
        for file in found.files or ():
            # What is above is a script with the path of its interpreter in it.
            if ".." not in file.parts:
                (target / file).parent.mkdir(parents=True, exist_ok=True)
                # With their times: bytecode is valid for a source of that time.
                shutil.copy2(str(file.locate()), target / file)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
