# SPDX-License-Identifier: GPL-2.0-only
"""Text for the terminal, made from records. This package formats numbers and computes none."""
