# SPDX-License-Identifier: GPL-2.0-only
"""Records come from the builders of the pure tests."""

import sys

from copyscope.base import paths

sys.path.append(str(paths.ROOT / "tests" / "pure"))
