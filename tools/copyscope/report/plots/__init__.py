# SPDX-License-Identifier: GPL-2.0-only
"""Plots of a sweep. Functions draw matplotlib figures from the table's rows, and compute no new numbers."""
