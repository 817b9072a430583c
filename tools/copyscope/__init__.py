# SPDX-License-Identifier: GPL-2.0-only
"""copyscope: where the copies of a TCP send happen, and what each one costs."""

VERSION = "0.3.0"
