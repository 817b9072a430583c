#!/usr/bin/env python3
"""Say what works on this machine, and what to do about the rest; see --help."""

from copyscope.launch import launch

launch("doctor")
