#!/usr/bin/env bash
# Packs what runs on a host of this architecture without a build: copyscope-ARCHITECTURE.tar.gz and its SHA-256, in the
# directory $1, where the static collector is already. The same files make the same bytes. Called by make.
set -euo pipefail
umask 022
cd "$(dirname "$(readlink -f "$0")")/.."
to=$1 name=copyscope-$(uname -m).tar.gz
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT
tree=$made/copyscope
packages=$tree/.venv/lib/$(basename "$(echo .venv/lib/python3.*)")/site-packages
mkdir -p "$tree/.output" "$packages"
cp -r --no-preserve=mode,ownership bin tools "$tree"
rm "$tree"/tools/*.sh
install -t "$tree/.output" "$to/collector"
install -T .output/guest/traffic "$tree/.output/traffic"
install -m 644 -t "$tree/.output" .output/xdp_pass.bpf.o
install -m 644 -D -t "$tree/experiments" experiments/crossover.toml
.venv/bin/python3 -I tools/copyscope/__main__.py packages "$packages" requirements.txt
find "$tree" -name __pycache__ -prune -exec rm -rf {} +
strip "$tree/.output/collector" "$tree/.output/traffic"
chmod 755 "$tree"/bin/* "$tree"/tools/*.py
tar -C "$made" --sort=name --owner=0 --group=0 --numeric-owner --mtime=@0 -c copyscope | gzip -n > "$to/$name.part"
mv "$to/$name.part" "$to/$name"
(cd "$to" && sha256sum "$name" > "$name.sha256")
echo "bundle: $to/$name"
