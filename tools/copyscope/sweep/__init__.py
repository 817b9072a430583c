# SPDX-License-Identifier: GPL-2.0-only
"""Sweeps: a TOML file describes an experiment, whose runs are each measured once and kept as records."""
