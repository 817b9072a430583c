"""Where things are, in the tree or where it was installed. Nothing else: no file is opened here."""

import re
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
# A wheel has in the package what a tree has beside tools/.
ROOT = PACKAGE if (PACKAGE / ".output").is_dir() else PACKAGE.parent.parent
OUTPUT = ROOT / ".output"
# An installed tree has nothing to build it with, and no results: its users' are where they are.
INSTALLED = not (ROOT / "Makefile").exists()
RESULTS = (Path() if INSTALLED else ROOT) / "results"
TRAFFIC = OUTPUT / "traffic"
COLLECTOR = OUTPUT / "collector"
XDP_OBJECT = OUTPUT / "xdp_pass.bpf.o"
# What an installed tree was built of: JSON (tools/dist.py).
BUILT_OF = OUTPUT / "built-of.json"


# In the directory of a host whose results came with the tree.
REFERENCE = ".reference"


def host_results(hostname: str, kernel: str) -> Path:
    """Where the results of a host are, of each kernel apart: many machines are called alike."""
    return RESULTS / re.sub(r"[^A-Za-z0-9._-]", "-", f"{hostname}-{kernel}")


def all_results(hostname: str) -> list[Path]:
    """Those of every kernel that machines of this name have had, without the reference results."""
    name = re.sub(r"[^A-Za-z0-9._-]", "-", hostname)
    found = [RESULTS / name, *sorted(RESULTS.glob(f"{name}-*"))]
    return [path for path in found if not is_reference(path)]


def is_reference(directory: Path) -> bool:
    """Whether a sweep, or all of a host, are reference results: another machine's, to be read only."""
    return any((place / REFERENCE).exists() for place in (directory, directory.absolute().parent))
