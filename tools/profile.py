#!/usr/bin/env -S python3 -I
"""`copyscope run` under the name that people type: the same words, the same screen."""

import os
import sys
from pathlib import Path

FRONT = str(Path(__file__).resolve().parent.parent / "bin" / "copyscope")

os.execv(FRONT, [FRONT, "run", *sys.argv[1:]])
