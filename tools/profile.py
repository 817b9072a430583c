#!/usr/bin/env -S python3 -I
# SPDX-License-Identifier: GPL-2.0-only
"""Former name of `copyscope run`: run that command with the given options."""

import os
import sys
from pathlib import Path

COPYSCOPE = str(Path(__file__).resolve().parent.parent / "bin" / "copyscope")

os.execv(COPYSCOPE, [COPYSCOPE, "run", *sys.argv[1:]])
