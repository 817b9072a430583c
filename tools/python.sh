#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# python.sh [MODULE]: prints the path of a Python for copyscope, 3.11 or newer and with MODULE: python3, or else the newest python3.X.
# RHEL 9 has python3.12 besides its python3 (3.9), and Ubuntu 22.04 has python3.11 besides 3.10.
for name in python3 python3.15 python3.14 python3.13 python3.12 python3.11; do
	if "$name" -ISc "import sys${1:+, $1}; sys.exit(sys.version_info < (3, 11))" 2>/dev/null; then
		command -v "$name"
		exit
	fi
done
version=$(python3 -V 2>/dev/null) || version=missing
[ -e "${0%/*}/deps.sh" ] && next='sudo tools/deps.sh run' || next='install one besides python3'
echo "copyscope: python3: $version: Python 3.11 or newer${1:+ with $1} is needed, as python3 or as python3.X; $next" >&2
exit 1
