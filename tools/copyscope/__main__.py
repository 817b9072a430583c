"""python3 -P tools/copyscope COMMAND ARGS: loads the package by its path and runs one command."""

import gc
import importlib
import importlib.util
import os
import sys
from pathlib import Path
from types import ModuleType

PACKAGE = Path(__file__).resolve().parent


def load_package() -> None:
    """Make `copyscope` importable without tools/ on sys.path (see start/launch.py)."""
    spec = importlib.util.spec_from_file_location(
        "copyscope", PACKAGE / "__init__.py", submodule_search_locations=[str(PACKAGE)]
    )
    if spec is None or spec.loader is None:
        raise ImportError(f"{PACKAGE}: not a package")
    module = importlib.util.module_from_spec(spec)
    sys.modules["copyscope"] = module
    spec.loader.exec_module(module)


def load(command: str, name: str) -> ModuleType:
    """A module of ours; one line and the command's status for a failure where that cannot be loaded."""
    try:
        return importlib.import_module(f"copyscope.{name}")
    except (ImportError, MemoryError, OSError, SystemError) as error:
        # SystemError: what Python makes of some allocations that fail.
        why = "there is not enough memory"
        if isinstance(error, ImportError):
            why = str(error).rpartition(": ")[2]  # without the path of a library, which is long
        print(f"{command}: cannot be loaded: {why}: free some memory, or build again: make", file=sys.stderr)
        sys.exit(2 if command == "diff" else 1)


def run(command: str, argv: list[str]) -> int:
    """One command, from whole standard streams to an exit status that knows what became of them."""
    streams = load(command, "start.streams")
    streams.open_standard()
    try:
        if sys.prefix == sys.base_prefix and command != "copyscope":
            # Outside of the project's environment nothing but help is asked for (start/launch.py).
            load(command, "commands.verbs").help_of(command, argv)
        status = load(command, f"commands.{command}").main(argv)
    except SystemExit as ended:  # --help
        status = ended.code
    return int(streams.end(command, status or 0))


if __name__ == "__main__":
    # Under sudo the tree is the invoking user's: nothing of root's is left in it. make has compiled it.
    sys.dont_write_bytecode = "SUDO_UID" in os.environ
    load_package()
    status = run(sys.argv[1], sys.argv[2:])
    # Python looks for garbage in all that there is before it ends: 40 ms.
    gc.freeze()
    sys.exit(status)
