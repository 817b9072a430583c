#!/usr/bin/env python3
"""Profile one send strategy and print its copy ledger; see --help."""

from copyscope.launch import launch

launch("profile")
