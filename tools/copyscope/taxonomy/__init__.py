# SPDX-License-Identifier: GPL-2.0-only
"""Classify kernel functions as copies or stages of work, and user functions as copies or ciphers. Pure."""
