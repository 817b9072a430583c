#!/usr/bin/env -S COPYSCOPE_CALLERS_PATH=${PATH} PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin python3 -E -s
# ruff: noqa: E501 (a first line is one line)
"""One command on many hosts, and one table; see --help."""

from copyscope.start.launch import launch

launch("fleet")
