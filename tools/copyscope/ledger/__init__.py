# SPDX-License-Identifier: GPL-2.0-only
"""Arithmetic on one record: copies, stages, consistency checks and the verdict. Pure."""
