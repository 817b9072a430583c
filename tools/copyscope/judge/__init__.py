# SPDX-License-Identifier: GPL-2.0-only
"""Comparison of runs: estimates, differences, crossovers and advice. Pure."""
