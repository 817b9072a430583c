# SPDX-License-Identifier: GPL-2.0-only
"""Carry out a planned run: with copyscope's own traffic, on a watched process or in a simulated machine."""
