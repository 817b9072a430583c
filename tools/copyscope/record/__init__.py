# SPDX-License-Identifier: GPL-2.0-only
"""Records: all measurements and results of one run, as typed values and as one JSON document."""
