"""Starts a command in the project's own interpreter, in safe-path mode.

`tools/profile.py` would shadow the standard library's `profile` for everything that runs with tools/ on
sys.path (`import cProfile` fails). So the files in tools/ only re-execute `python3 -P` on the package's
__main__.

This module runs under whatever python3 the user has: the standard library only, no other import of ours.
"""

import os
import sys
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent.parent
PYTHON = ROOT / ".venv" / "bin" / "python3"
MAIN = ROOT / "tools" / "copyscope" / "__main__.py"


def launch(command: str) -> NoReturn:
    """Replace this process by `.venv/bin/python3 -P .../__main__.py COMMAND ARGS`."""
    if not PYTHON.exists():
        sys.exit(f"copyscope: {PYTHON.relative_to(ROOT)}: missing: build first: sudo make deps && make")
    os.execv(PYTHON, [str(PYTHON), "-P", str(MAIN), command, *sys.argv[1:]])
