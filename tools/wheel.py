# SPDX-License-Identifier: GPL-2.0-only
"""Build hook for hatchling: add the compiled programs of one architecture to the wheel."""

import os
import platform
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# Environment variable with the architecture of the wheel; default: that of this machine.
MACHINE = "COPYSCOPE_MACHINE"


class Programs(BuildHookInterface[Any]):
    """Build hook for statically linked programs, which need no particular C library or Python version."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:  # noqa: ARG002
        """Add the programs to the wheel, and tag it with the architecture. Raises FileNotFoundError."""
        machine = os.environ.get(MACHINE, platform.machine())
        programs = Path(self.root, ".output", "dist.d", machine, "programs")
        if not (programs / "collector").is_file():
            raise FileNotFoundError(f"{programs}: contains no programs; run make dist")
        build_data["tag"] = f"py3-none-manylinux_2_17_{machine}"
        build_data["force_include"][str(programs)] = "copyscope/.output"
