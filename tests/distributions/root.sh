#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# root.sh SUITE COMMAND...: run COMMAND in a root of a Debian or Ubuntu suite, as a user with sudo, in a fresh clone of this tree's HEAD.
#
# debootstrap makes the root, with packages of the distribution's archive; both are cached for a week, outside the tree. COMMAND
# writes to an overlay that is discarded, except /results, which is $COPYSCOPE_RESULTS. It runs on this machine's kernel, in a new
# mount namespace and cgroup, but in this machine's pid namespace, because BPF programs see only these process ids. A watcher
# outside of both waits for the end of a pipe: whatever ends this script also ends the programs that it started.
set -euo pipefail

suite=$1
shift
tree=$(cd "$(dirname "$0")/../.." && pwd)
cache=${COPYSCOPE_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/copyscope}/roots
root=$cache/$suite
archives=$cache/archives
# Packages that a user needs to type the README's commands. deps.sh installs the rest.
BEFORE=sudo,make,git,ca-certificates

die() { echo "root: $suite: $*" >&2; exit 1; }

case $suite in
bookworm | trixie | forky | sid)
	mirror=${COPYSCOPE_MIRROR:-http://deb.debian.org/debian}
	from=("$suite" "$root.part" "$mirror")
	;;
*)
	# debootstrap treats all Ubuntu suites alike (its scripts are links to this one), and may be older than the suite.
	mirror=${COPYSCOPE_UBUNTU_MIRROR:-http://archive.ubuntu.com/ubuntu}
	archives=$archives-ubuntu
	keys=$cache/ubuntu/usr/share/keyrings/ubuntu-archive-keyring.gpg
	from=(--keyring="$keys" "--components=main,universe" "$suite" "$root.part" "$mirror" gutsy)
	;;
esac

[ $EUID -eq 0 ] || die "not root: run with sudo"
command -v debootstrap >/dev/null || die "debootstrap: missing: run: sudo tools/deps.sh distributions"

# Debian has no package with Ubuntu's keys. This keyring has 790B C727 7767 219C ... (2012) and F6EC B376 2474 EDA9 ... (2018).
UBUNTU_KEYRING=pool/main/u/ubuntu-keyring/ubuntu-keyring_2023.11.28.1_all.deb
UBUNTU_KEYRING_SHA256=36de43b15853ccae0028e9a767613770c704833f82586f28eb262f0311adb8a8

get_ubuntu_keys() {
	local package=$cache/ubuntu-keyring.deb

	wget --quiet --output-document "$package" "$mirror/$UBUNTU_KEYRING" || die "$mirror/$UBUNTU_KEYRING: cannot be fetched"
	echo "$UBUNTU_KEYRING_SHA256 $package" | sha256sum --check --status || die "$package: not what was expected: is $mirror a mirror of Ubuntu?"
	dpkg-deb --extract "$package" "$cache/ubuntu"
}

make_root() {
	rm -rf "$root.part" "$root"
	mkdir -p "$root.part" "$archives"
	[ -z "${keys:-}" ] || [ -r "$keys" ] || get_ubuntu_keys
	[ "$(df --output=avail -k "$cache" | tail -1)" -gt 4000000 ] || die "$cache: less than 4 GB free"
	# Its mounts disappear with the namespace.
	unshare --mount --fork --kill-child debootstrap --variant=minbase --include="$BEFORE" "${from[@]}" >"$cache/$suite.log" 2>&1 ||
		die "debootstrap failed: $(tail -1 "$cache/$suite.log"): see $cache/$suite.log"
	chroot "$root.part" useradd --create-home --shell /bin/bash user
	echo 'user ALL=(ALL) NOPASSWD: ALL' >"$root.part/etc/sudoers.d/user"
	# A mirror may be out of date; downloaded packages are kept.
	printf '%s\n' 'Acquire::Check-Valid-Until "false";' 'APT::Keep-Downloaded-Packages "true";' \
		>"$root.part/etc/apt/apt.conf.d/copyscope"
	mv "$root.part" "$root"
}
[ -n "$(find "$root" -maxdepth 0 -mtime -7 2>/dev/null)" ] || make_root

# The cgroup2 hierarchy of this machine, if it is mounted.
work=$(mktemp -d "$cache/work.XXXXXX")
mkdir "$work/cgroups" "$work/upper" "$work/work" "$work/merged"
mount -t cgroup2 cgroup2 "$work/cgroups" || die "cgroup2: cannot be mounted"
cgroup=$work/cgroups/copyscope-$suite-$$
mkdir "$cgroup"

# shellcheck disable=SC2016 # the inner shell expands its arguments
exec 3> >(exec setsid bash -c '
	trap "" HUP INT TERM
	cat >/dev/null
	echo 1 >"$2/cgroup.kill"
	until rmdir "$2" 2>/dev/null; do sleep 0.1; done
	umount "$1/cgroups"
	rm -rf "$1"' watcher "$work" "$cgroup")
watcher=$!

# shellcheck disable=SC2317 # another bash calls it
inside() {
	set -euo pipefail
	local at=$work/merged command=$*
	mount -t overlay -o "lowerdir=$root,upperdir=$work/upper,workdir=$work/work" overlay "$at"
	mount -t proc proc "$at/proc"
	mount --rbind /sys "$at/sys"
	mount --rbind /dev "$at/dev"
	mount -t tmpfs run "$at/run"
	mount --bind "$archives" "$at/var/cache/apt/archives"
	mkdir -p "$at/results"
	[ -z "${COPYSCOPE_RESULTS:-}" ] || mount --bind "$COPYSCOPE_RESULTS" "$at/results"
	cp /etc/resolv.conf "$at/etc/resolv.conf"
	cp /etc/hosts "$at/etc/hosts"
	# The root trusts the certificates of this machine, because a registry may be behind a proxy.
	[ ! -r /etc/ssl/certs/ca-certificates.crt ] || cp /etc/ssl/certs/ca-certificates.crt "$at/etc/ssl/certs/"
	git clone --quiet --depth 1 "file://$tree" "$at/home/user/copyscope"
	# Not chroot(8): the kernel refuses user namespaces below a root that is not the root of its mount namespace (user_namespaces(7)).
	mkdir "$at/.outside"
	cd "$at"
	pivot_root . .outside
	umount --lazy .outside
	rmdir .outside
	chown -R user:user /home/user/copyscope
	setpriv --reuid user --regid user --init-groups \
		env -i HOME=/home/user USER=user LOGNAME=user LANG=C.UTF-8 PATH=/usr/local/bin:/usr/bin:/bin \
		bash -c "cd ~/copyscope && $command"
}

status=0
(
	echo $BASHPID >"$cgroup/cgroup.procs"
	exec 3>&-
	export -f inside
	export work root archives tree
	exec unshare --mount --propagation private bash -c 'inside "$@"' inside "$@"
) </dev/null || status=$?
exec 3>&-
wait "$watcher" || true
exit "$status"
