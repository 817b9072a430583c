#!/usr/bin/env python3
"""Say from which message size on one send strategy overtakes another; see --help."""

from copyscope.launch import launch

launch("crossover")
