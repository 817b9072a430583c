"""python3 -P tools/copyscope COMMAND ARGS: loads the package by its path and runs one command."""

import importlib
import importlib.util
import os
import sys
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent


def load_package() -> None:
    """Make `copyscope` importable without tools/ on sys.path (see launch.py)."""
    spec = importlib.util.spec_from_file_location(
        "copyscope", PACKAGE / "__init__.py", submodule_search_locations=[str(PACKAGE)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{PACKAGE}: not a package")
    module = importlib.util.module_from_spec(spec)
    sys.modules["copyscope"] = module
    spec.loader.exec_module(module)


if __name__ == "__main__":
    # Under sudo the tree is the invoking user's: nothing of root's is left in it. make has compiled it.
    sys.dont_write_bytecode = "SUDO_UID" in os.environ
    load_package()
    command = sys.argv[1]
    sys.exit(importlib.import_module(f"copyscope.commands.{command}").main(sys.argv[2:]))
