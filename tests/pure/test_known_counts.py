# SPDX-License-Identifier: GPL-2.0-only
"""Errors of counts that tests of a simulated PMU compare with theory."""

import math
import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).resolve().parents[1] / "pmu"))

from copies import Figure, relative_error


@pytest.mark.parametrize(("found", "truth", "error"), [(3, 2, 0.5), (0, 2, -1), (0, 0, 0), (1, 0, math.inf)])
def test_a_truth_of_0_has_an_error(found: float, truth: float, error: float) -> None:
    assert relative_error(found, truth) == error


@pytest.mark.parametrize(("found", "missed"), [(0.0, False), (0.5, True), (None, True)])
def test_counts_of_a_copy_that_did_not_happen_miss_the_goal(found: float | None, missed: bool) -> None:
    figure = Figure("one_copy", "copy_in", "llc_misses", "exact", 0.0, found)
    assert figure.missed is missed
