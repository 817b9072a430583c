#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# fetch.sh SUITE ARCH [PACKAGE...]: download the newest Debian kernel of a suite, or packages of it (to build for another
# architecture), and print their directory. SUITE/all: with all dependencies of the packages, down to the C library.
#
# The directory has vmlinuz and lib/modules/VERSION (with modules.dep), or the unpacked packages. The machine's own apt is
# not changed: state, lists and sources are private. Downloads are cached for a week, outside the tree.
set -euo pipefail

suite=${1%/all} arch=$2 wanted=$1
shift 2
cache=${COPYSCOPE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/copyscope}/kernels
here=$cache/${wanted/\//-}-$arch
# Each list of packages has a directory.
[ $# -eq 0 ] || here=$here-$(printf '%s\n' "$@" | cksum | cut -d' ' -f1)
mirror=${COPYSCOPE_MIRROR:-http://deb.debian.org/debian}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

if [ -e "$here/ready" ] && [ -n "$(find "$here/ready" -mtime -7)" ]; then
	cat "$here/ready"
	exit 0
fi

die() { echo "fetch: $suite-$arch: $*" >&2; exit 1; }

[ -r "$keyring" ] || die "$keyring: missing: install debian-archive-keyring"
mkdir -p "$here/lists/partial" "$here/debs"
free_kib=$(df --output=avail -k "$here" | tail -1)
[ "$free_kib" -gt 1500000 ] || die "$here: less than 1.5 GB free"

printf 'deb [signed-by=%s] %s %s main\n' "$keyring" "$mirror" "$suite" > "$here/sources.list"
apt=(apt-get -qq -o "Dir::Etc::SourceList=$here/sources.list" -o Dir::Etc::SourceParts=/dev/null
	-o "Dir::State::Lists=$here/lists" -o Dir::State::status=/dev/null -o "Dir::Cache=$here"
	-o "APT::Architecture=$arch" -o "APT::Architectures=$arch" -o APT::Sandbox::User=root
	-o Acquire::Languages=none -o Acquire::Retries=3 -o Acquire::Check-Valid-Until=false)
cache_of=(apt-cache "${apt[@]:2}")

"${apt[@]}" update || die "$mirror: no package lists"
[ "$arch" = amd64 ] || [ "$arch" = arm64 ] || die "unknown architecture; choose amd64 or arm64"

depends() { "${cache_of[@]}" depends --no-recommends --no-suggests "$1" | sed -n 's/^ *Depends: //p'; }

packages=("$@")
if [ $# -eq 0 ]; then
	# The meta package depends on the image. From 7.x on, the image depends on linux-binary and linux-modules.
	meta=linux-image-$arch
	image=$(depends "$meta" | grep '^linux-image-[0-9]' | head -1)
	[ -n "$image" ] || die "$meta: names no image"
	packages=("$image")
	for part in $(depends "$image" | grep -E '^linux-(binary|modules)-[0-9]' || true); do
		packages+=("$part")
	done
fi
rm -rf "$here/root" && mkdir "$here/root"
get=("${apt[@]}" download)
[ "$wanted" = "$suite" ] || get=("${apt[@]}" -o "Dir::Cache::Archives=$here/debs" -y --no-install-recommends --download-only install)
(cd "$here/debs" && mkdir -p partial && rm -f ./*.deb && "${get[@]}" "${packages[@]}") >&2 || die "${packages[*]}: cannot be downloaded"
for deb in "$here"/debs/*.deb; do dpkg -x "$deb" "$here/root"; done
rm -f "$here"/debs/*.deb
if [ $# -gt 0 ]; then
	echo "$here/root" > "$here/ready"
	cat "$here/ready"
	exit 0
fi

# A merged-/usr image has its modules in usr/lib/modules.
[ -d "$here/root/lib/modules" ] || { mkdir -p "$here/root/lib" && ln -s ../usr/lib/modules "$here/root/lib/modules"; }
version=$(basename "$(find "$here/root/lib/modules/" -mindepth 1 -maxdepth 1 -type d | head -1)")
kernel=$(find "$here/root" -name "vmlinu[xz]*" -size +1M -not -path '*/debug/*' | head -1)
[ -n "$kernel" ] || die "$image: holds no kernel image"
cp "$kernel" "$here/root/vmlinuz"
depmod -b "$here/root" "$version" || die "$version: depmod failed"
echo "$here/root" > "$here/ready"
cat "$here/ready"
