# SPDX-License-Identifier: GPL-2.0-only
"""Plan a run: its options, segments, instruments, CPUs and tier. Nothing is started here."""
