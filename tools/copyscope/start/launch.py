"""Starts a command in the project's own interpreter, in isolated mode.

`tools/profile.py` would shadow the standard library's `profile` for everything that runs with tools/ on
sys.path (`import cProfile` fails), and PYTHONPATH would let the caller choose what root imports. So the files
in tools/ only re-execute `python3 -I` on the package's __main__; as root in an environment of root's
(environment.py), and only in a tree that nobody else can change (trust.py). Their first lines give PATH to
env(1), so that the first Python is not looked for in directories of the caller's, either.

This module runs under whatever python3 the user has: the standard library only, and of ours what does the
same. It only looks for another interpreter, so it does without pathlib, which takes as long as Python itself.
"""
# ruff: noqa: PTH118, PTH120

import os
import sys

from copyscope.start.environment import for_root, of_caller, without_odd_sizes
from copyscope.start.trust import find_danger

PACKAGE = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
ROOT = os.path.dirname(os.path.dirname(PACKAGE))
PYTHON = ".venv/bin/python3"
HELP = {"-h", "--help", "--help-all", "--version"}


def launch(command: str) -> None:
    """Replace this process by `.venv/bin/python3 -I .../__main__.py COMMAND ARGS`."""
    python = os.path.join(ROOT, PYTHON)
    environment = without_odd_sizes(of_caller(os.environ))
    if os.geteuid() == 0:
        danger = find_danger(ROOT)
        if danger is not None:
            from copyscope.escaping import one_line  # noqa: PLC0415 (nothing else needs it here)

            refuse(command, one_line(f"{command}: {danger}"))
        environment = for_root(environment)
    main = os.path.join(PACKAGE, "__main__.py")
    try:
        os.execve(python, [python, "-I", main, command, *sys.argv[1:]], environment)
    except FileNotFoundError:
        if HELP & set(sys.argv) or (command == "copyscope" and not sys.argv[1:]):
            # What only explains needs nothing that is built.
            os.execve(sys.executable, [sys.executable, "-I", "-B", main, command, *sys.argv[1:]], environment)
        refuse(command, f"copyscope: {PYTHON}: missing: build first: sudo make deps && make")
    except OSError as error:  # as where the interpreter that root made it from is below /root
        typed = sys.argv[0] if command == "copyscope" else f"tools/{command}.py"
        again = " ".join(["sudo", typed, *sys.argv[1:]])
        real = os.path.realpath(python)
        refuse(command, f"copyscope: {real}: {error.strerror}: this user cannot run it: {again}")


def refuse(command: str, why: str) -> None:
    """End with one line. The status 1 of `diff` is a regression: its own for everything else is 2."""
    print(why, file=sys.stderr)
    verb = sys.argv[1:2] if command == "copyscope" else [command]
    sys.exit(2 if verb == ["diff"] else 1)
