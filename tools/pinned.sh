#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# pinned.sh FILE [MODULE...]: installs the packages that FILE pins, with their hashes, into .venv: from wheels/ if that exists, else with pip
# from its index (PIP_INDEX_URL, https_proxy). If both fail, the packages of the distribution are used, if they contain all MODULEs.
set -eu
cd "$(dirname "$(readlink -f "$0")")/.."
file=$1
shift
python=.venv/bin/python3
errors=$(mktemp)
trap 'rm -f "$errors"' EXIT

# Let .venv use the packages of the distribution, which are usually older than the pinned ones. Fails if a module is missing there.
use_distribution() { # MODULE...
	sed -i 's/^\(include-system-site-packages\) = .*/\1 = true/' .venv/pyvenv.cfg
	"$python" -Ic "import $(echo "$*" | tr ' ' ,)" 2>/dev/null && return
	sed -i 's/^\(include-system-site-packages\) = .*/\1 = false/' .venv/pyvenv.cfg
	return 1
}

pip_source=
[ ! -d wheels ] || pip_source='--no-index --find-links=wheels'
# shellcheck disable=SC2086 # two words or none
"$python" -m pip install --quiet --disable-pip-version-check $pip_source --require-hashes -r "$file" 2>"$errors" && exit
reason=$(sed -n 's/^ERROR: //p' "$errors" | tail -1)
if [ $# -gt 0 ] && use_distribution "$@"; then
	echo "  pip: ${reason:-failed}; using the distribution's $*"
	exit
fi
distribution=${*:+"install $(printf 'python3-%s ' "$@")of this distribution, or "}
echo "copyscope: $file: pip: ${reason:-failed}; behind a proxy set https_proxy; without a network ${distribution}fill wheels/ on another" \
	"machine with the same Python (pip download -d wheels -r $file), and make again" >&2
exit 1
