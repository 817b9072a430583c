#!/usr/bin/env python3
"""Run an experiment, every run once; see --help."""

from copyscope.launch import launch

launch("sweep")
