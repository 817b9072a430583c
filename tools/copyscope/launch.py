"""Starts a command in the project's own interpreter, in safe-path mode.

`tools/profile.py` would shadow the standard library's `profile` for everything that runs with tools/ on
sys.path (`import cProfile` fails). So the files in tools/ only re-execute `python3 -P` on the package's
__main__.

This module runs under whatever python3 the user has: the standard library only, no other import of ours.
It only looks for another interpreter, so it does without pathlib, which takes as long as Python itself.
"""
# ruff: noqa: PTH118, PTH120

import os
import sys

PACKAGE = os.path.dirname(os.path.realpath(__file__))
ROOT = os.path.dirname(os.path.dirname(PACKAGE))
PYTHON = ".venv/bin/python3"


def launch(command: str) -> None:
    """Replace this process by `.venv/bin/python3 -P .../__main__.py COMMAND ARGS`."""
    python = os.path.join(ROOT, PYTHON)
    try:
        os.execv(python, [python, "-P", os.path.join(PACKAGE, "__main__.py"), command, *sys.argv[1:]])
    except FileNotFoundError:
        sys.exit(f"copyscope: {PYTHON}: missing: build first: sudo make deps && make")
    except OSError as error:  # as where the interpreter that root made it from is below /root
        again = " ".join(["sudo", f"tools/{command}.py", *sys.argv[1:]])
        sys.exit(f"copyscope: {os.path.realpath(python)}: {error.strerror}: this user cannot run it: {again}")
