# SPDX-License-Identifier: GPL-2.0-only
"""Check the machine: which instruments work, and which send methods avoid the copy."""
