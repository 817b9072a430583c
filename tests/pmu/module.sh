#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# module.sh SUITE DIRECTORY: build simpmu.ko in DIRECTORY, for the kernel of a Debian suite (tests/kernels/fetch.sh).
#
# The kernel's headers are unpacked and not installed. Their paths are those of an installed system, their programs may need a
# newer C library, and a newer gcc may have built the kernel: the script adapts all three in the unpacked copy.
set -euo pipefail

mkdir -p "$2"
suite=$1 work=$(realpath "$2")
here=$(cd "$(dirname "$0")" && pwd)
fetch=$here/../kernels/fetch.sh
release=$(basename "$(find "$("$fetch" "$suite" amd64)/lib/modules/" -mindepth 1 -maxdepth 1)")
common=${release%-amd64}
root=$("$fetch" "$suite" amd64 "linux-headers-$release" "linux-headers-$common-common" "linux-kbuild-$common")
headers=$root/usr/src/linux-headers-$release

sed -i "s|\([ =]\)/usr/src|\1$root/usr/src|" "$headers/Makefile"
for program in "$root"/usr/lib/linux-kbuild-*/tools/objtool/objtool.real-x86 "$root"/usr/lib/linux-kbuild-*/scripts/mod/modpost.real-lsb-64; do
	[[ $("$program" 2>&1 < /dev/null || true) == *GLIBC_*'not found'* ]] || continue
	libraries=$("$fetch" "$suite" amd64 libc6 libelf1t64 zlib1g libzstd1 libssl3t64)/usr/lib/x86_64-linux-gnu
	mv "$program" "$program.own"
	printf '#!/bin/sh\nexec %s/ld-linux-x86-64.so.2 --library-path %s %s.own "$@"\n' "$libraries" "$libraries" "$program" > "$program"
	chmod +x "$program"
done

cp "$here/simpmu.c" "$here/../../src/simulator/simpmu.h" "$work"
echo 'obj-m := simpmu.o' > "$work/Makefile"
cat > "$work/cc" <<-'END'
	#!/usr/bin/env bash
	exec gcc "${@/#-fmin-function-alignment=/-falign-functions=}"
END
chmod +x "$work/cc"
make -s -C "$headers" M="$work" CC="$work/cc" CONFIG_DEBUG_INFO_BTF_MODULES= modules >&2
