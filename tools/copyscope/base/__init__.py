# SPDX-License-Identifier: GPL-2.0-only
"""Helpers that all packages of copyscope share: errors, text, statistics, files and starting programs."""
