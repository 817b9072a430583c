"""For hatchling: the wheel of one kind of machine, with the programs that were built for it."""

import os
import platform
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

MACHINE = "COPYSCOPE_MACHINE"


class Programs(BuildHookInterface[Any]):
    """They are statically linked: any C library, and any Python, will do."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        machine = os.environ.get(MACHINE, platform.machine())
        programs = Path(self.root, ".output", "dist.d", machine, "programs")
        if not (programs / "collector").is_file():
            raise FileNotFoundError(f"{programs}: nothing is built there: make dist")
        build_data["tag"] = f"py3-none-manylinux_2_17_{machine}"
        build_data["force_include"][str(programs)] = "copyscope/.output"
