#!/usr/bin/env python3
"""Judge the claims of the published reports by what was measured; see --help."""

from copyscope.launch import launch

launch("claims")
