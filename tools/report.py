#!/usr/bin/env python3
"""Make plots, tables and a report from the records of a sweep; see --help."""

from copyscope.launch import launch

launch("report")
