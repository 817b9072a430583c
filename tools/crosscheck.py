#!/usr/bin/env python3
"""Our instruments and other people's tools on one traffic; see --help."""

from copyscope.launch import launch

launch("crosscheck")
