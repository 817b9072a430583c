# SPDX-License-Identifier: GPL-2.0-only
"""The command line of copyscope: one file per command, with the command's options, exit status and files."""
