# SPDX-License-Identifier: GPL-2.0-only
"""Run copyscope with a Python that does not know the package: python3 -I tools COMMAND [OPTIONS]."""

import runpy

if __name__ == "__main__":
    runpy.run_module("copyscope.commands", run_name="__main__", alter_sys=True)
