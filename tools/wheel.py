# SPDX-License-Identifier: GPL-2.0-only
"""Hooks for hatchling: add the compiled programs of one architecture and the origin of a release."""

import os
import platform
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from hatchling.metadata.plugin.interface import MetadataHookInterface

# Environment variable with the architecture of the wheel; default: that of this machine.
MACHINE = "COPYSCOPE_MACHINE"
# Environment variable with the email address that PyPI shows.
CONTACT = "COPYSCOPE_CONTACT"


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


class Origin(MetadataHookInterface):
    """Metadata hook for the origin of a release: the repository and the contact that its CI names."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Set the authors and the URLs. Without CI there is neither an address nor a URL."""
        contact, server = os.environ.get(CONTACT), os.environ.get("GITHUB_SERVER_URL")
        metadata["authors"] = [{"name": "The copyscope authors"} | ({"email": contact} if contact else {})]
        metadata["urls"] = {"Source": f"{server}/{os.environ['GITHUB_REPOSITORY']}"} if server else {}
