#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# built_of.sh FILE [MACHINE]: writes the JSON file that says what an installed copy was built from (paths.BUILT_OF). Without git it
# contains no commit. MACHINE: the architecture; default: this machine's.
set -eu
file=$(realpath "$1") machine=${2:-$(uname -m)}
cd "$(dirname "$(readlink -f "$0")")/.."
commit=$(git rev-parse --short=12 HEAD 2>/dev/null) || commit=
if [ -z "$(git status --porcelain -uno 2>/dev/null)" ]; then changed=false; else changed=true; fi
clang=$("${CLANG:-clang}" --version | sed -n 's/.*version \([0-9.]*\).*/\1/p')
echo "{${commit:+\"commit\": \"$commit\", \"changed\": $changed, }\"for\": \"$machine\", \"by clang\": \"$clang\"}" > "$file"
