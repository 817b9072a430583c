#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# cookbook.sh: runs the bpftrace cookbook here, and in a guest of Debian's newest kernel, and writes docs/4-cookbook.md.
set -euo pipefail
cd "$(dirname "$0")/../.."

results=results/cookbook
python=(.venv/bin/python3 -P -B tests/bench/cookbook.py)
root=${COPYSCOPE_KERNELS:-$HOME/.cache/copyscope/kernels}/sid-amd64/root
mkdir -p "$results"

"${python[@]}" measure > "$results/host.json.part"
mv "$results/host.json.part" "$results/host.json"

marker=@@ANSWERS
tests/kernels/boot.sh "$root" \
	"echo $marker; COPYSCOPE_EMULATED='QEMU without KVM' COPYSCOPE_PAIRS=1 ${python[*]} measure 2>/dev/null; echo $marker" |
	sed -n "/^$marker/,/^$marker/p" | grep -v "^$marker" > "$results/guest.json.part"
mv "$results/guest.json.part" "$results/guest.json"

"${python[@]}" write docs/4-cookbook.md "$results/host.json" "$results/guest.json"
