#!/bin/sh
# pinned.sh FILE [MODULE...]: the packages that FILE pins, with their hashes, into .venv: of wheels/ if there is one, else by pip from
# its index (PIP_INDEX_URL, https_proxy). Where neither is to be had, the distribution's packages do if they bring these MODULES.
set -eu
cd "$(dirname "$(readlink -f "$0")")/.."
file=$1
shift
python=.venv/bin/python3
said=$(mktemp)
trap 'rm -f "$said"' EXIT

# They are older than what is pinned, as a rule.
borrow() { # MODULE...
	sed -i 's/^\(include-system-site-packages\) = .*/\1 = true/' .venv/pyvenv.cfg
	"$python" -Ic "import $(echo "$*" | tr ' ' ,)" 2>/dev/null && return
	sed -i 's/^\(include-system-site-packages\) = .*/\1 = false/' .venv/pyvenv.cfg
	return 1
}

from=
[ ! -d wheels ] || from='--no-index --find-links=wheels'
# shellcheck disable=SC2086 # two words or none
"$python" -m pip install --quiet --disable-pip-version-check $from --require-hashes -r "$file" 2>"$said" && exit
why=$(sed -n 's/^ERROR: //p' "$said" | tail -1)
if [ $# -gt 0 ] && borrow "$@"; then
	echo "  pip: ${why:-failed}: the distribution's $* do instead"
	exit
fi
instead=${*:+"install $(printf 'python3-%s ' "$@")of this distribution, or "}
echo "copyscope: $file: pip: ${why:-failed}: behind a proxy set https_proxy; without a network ${instead}fill wheels/ elsewhere by the" \
	"same Python (pip download -d wheels -r $file), and make again" >&2
exit 1
