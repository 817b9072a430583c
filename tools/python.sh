#!/bin/sh
# python.sh [MODULE]: prints the Python for copyscope: python3, or where that is older than 3.11 (or has no MODULE) the newest one with
# its version in its name: RHEL 9 has python3.12 beside its 3.9, Ubuntu 22.04 python3.11 beside its 3.10.
for name in python3 python3.15 python3.14 python3.13 python3.12 python3.11; do
	if "$name" -ISc "import sys${1:+, $1}; sys.exit(sys.version_info < (3, 11))" 2>/dev/null; then
		command -v "$name"
		exit
	fi
done
found=$(python3 -V 2>/dev/null) || found=missing
[ -e "${0%/*}/deps.sh" ] && next='sudo tools/deps.sh run' || next='install one beside it'
echo "copyscope: python3: $found: Python 3.11 or newer${1:+ with $1} is needed, as python3 or by its name (python3.12): $next" >&2
exit 1
