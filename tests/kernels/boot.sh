#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# boot.sh ROOT COMMAND [QEMU ARGS...]: run COMMAND in a guest with the kernel of ROOT (fetch.sh). The guest sees this
# machine's files read-only through an overlay in memory. Exits with COMMAND's status, or 98 if the guest did not come up.
#
# COPYSCOPE_GUEST_ARCH=arm64: another architecture, which needs a tree of its own programs (COPYSCOPE_GUEST_TREE) with
# bin/busybox, bin/sh, usr/bin/env, sbin/ip. Its emulated PMU counts cycles and instructions only if time is counted in
# instructions, on one CPU: hence -icount (COPYSCOPE_GUEST_ICOUNT=no: without). The short pointer authentication is
# emulated 4 times faster.
#
# The guest has no network. tsc=reliable: on a busy host the watchdog would switch to the HPET, which takes microseconds to
# read (5.10). TCG unless COPYSCOPE_ACCEL=kvm, because /dev/kvm may exist and not work. thread=single: with a thread for
# each CPU, a CPU may run code that the kernel is patching for another one (a trampoline of fentry, a static key), and the
# guest dies of an int3. All CPUs of a guest then share one CPU of the host.
# A boot that did not reach its marker is tried once more; a command that ran is not repeated.
set -euo pipefail

root=$1 command=$2
shift 2
memory=${COPYSCOPE_GUEST_MEMORY:-2G}
limit_s=${COPYSCOPE_GUEST_TIMEOUT_S:-600}
here=$(cd "$(dirname "$0")" && pwd)
tree=${COPYSCOPE_GUEST_TREE:-/}
cwd=$PWD
console=ttyS0
busybox=/bin/busybox
case ${COPYSCOPE_GUEST_ARCH:-amd64} in
amd64)
	qemu=(qemu-system-x86_64 -smp "${COPYSCOPE_GUEST_CPUS:-2}")
	case ${COPYSCOPE_ACCEL:-tcg} in
	kvm) qemu+=(-accel kvm -cpu host) ;;
	*) qemu+=(-accel "tcg,thread=single" -cpu max) ;;
	esac
	;;
arm64)
	qemu=(qemu-system-aarch64 -M virt -smp 1 -accel tcg -cpu "max,pauth-impdef=on")
	[ "${COPYSCOPE_GUEST_ICOUNT:-yes}" = no ] || qemu+=(-icount "shift=0,sleep=off")
	console=ttyAMA0
	busybox=$tree/bin/busybox
	cwd=/
	;;
*)
	echo "boot: COPYSCOPE_GUEST_ARCH: $COPYSCOPE_GUEST_ARCH: use amd64 or arm64" >&2
	exit 98
	;;
esac
version=$(basename "$(find "$root/lib/modules/" -mindepth 1 -maxdepth 1 -type d | head -1)")

[ -x "$busybox" ] || { echo "boot: $busybox: missing: apt-get install busybox-static" >&2; exit 98; }

initrd=$root/initrd.gz
if [ ! -e "$initrd" ] || [ "$here/init" -nt "$initrd" ]; then
	work=$(mktemp -d)
	trap 'rm -rf "$work"' EXIT
	mkdir -p "$work"/{bin,dev,proc,sys,modules}
	cp "$busybox" "$work/bin/"
	install -m 755 "$here/init" "$work/init"
	number=10
	# In the order of their dependencies; builtin modules have no file.
	for module in virtio_pci 9pnet_virtio 9p overlay; do
		while read -r verb file _; do
			[ "$verb" = insmod ] || continue
			name=$(basename "${file%.ko*}")
			[ -z "$(find "$work/modules" -name "*-$name.ko")" ] || continue
			case $file in
			*.xz) xz -dc "$file" ;;
			*) cat "$file" ;;
			esac > "$work/modules/$number-$name.ko"
			number=$((number + 1))
		done < <(modprobe --dirname "$root" --set-version "$version" --show-depends "$module")
	done
	(cd "$work" && find . | cpio -o -H newc --quiet | gzip -1) > "$initrd.$$.part"
	mv "$initrd.$$.part" "$initrd"
fi

share() { echo "-fsdev local,id=$1,path=$2,security_model=none,readonly=on,multidevs=remap -device virtio-9p-pci,fsdev=$1,mount_tag=$1"; }

encoded=$(printf %s "$command" | base64 -w0)
# COMMAND_LINE_SIZE of x86 and arm64; the kernel truncates longer lines silently.
[ ${#encoded} -lt 1500 ] || { echo "boot: the command is too long for a kernel's command line: put it in a file" >&2; exit 98; }
log=$(mktemp)
for attempt in 1 2; do
	# shellcheck disable=SC2046
	timeout --foreground "$limit_s" "${qemu[@]}" -m "$memory" \
		-kernel "$root/vmlinuz" -initrd "$initrd" -nic none -display none -monitor none -serial stdio -no-reboot \
		-append "console=$console panic=-1 quiet tsc=reliable no_timer_check cwd=$cwd modules=$version command=$encoded ${COPYSCOPE_GUEST_APPEND:-}" \
		$(share host "$tree") $(share modules "$root/lib/modules") "$@" < /dev/null 2>&1 | sed -u 's/\r//g' | tee "$log" || true
	if grep -q '^@@BOOTED' "$log"; then
		break
	fi
	echo "boot: $version: the guest did not come up (attempt $attempt)" >&2
done
status=$(sed -n 's/^@@EXIT //p' "$log" | tail -1)
rm -f "$log"
exit "${status:-98}"
