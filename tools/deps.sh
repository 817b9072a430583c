#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Installs the packages of the distribution that copyscope needs. It first prints what is missing; if nothing is, it does nothing.
set -euo pipefail
here=$(dirname "$(readlink -f "$0")")

# The only list of packages. "found by" is a check for the file itself. It takes milliseconds and needs no package manager:
#   NAME  a program   <FILE>  a header   !COMMAND  a command that must succeed   a leading ?: the package is optional
# A distribution without a column has the package name of Debian; - means that it has no such package. The packages of a name with @
# depend on the release (resolve()).
PACKAGES='
# group       | what for                  | found by                  | Debian, Ubuntu     | Fedora, RHEL          | openSUSE          | Arch
run           | C compiler                | gcc                       | gcc
run           | C library headers         | <stdio.h>                 | libc6-dev          | glibc-devel           | glibc-devel       | glibc
run           | kernel headers            | <linux/errqueue.h>        | linux-libc-dev     | kernel-headers        | linux-glibc-devel | linux-api-headers
run           | build                     | make                      | make
run           | BPF compiler              | clang                     | clang
run           | BPF object tools          | llvm-strip                | llvm
run           | finding libraries         | pkg-config                | pkg-config         | pkgconf-pkg-config    | pkg-config        | pkgconf
run           | BPF loader, libbpf 0.8    | !have_libbpf              | libbpf-dev         | libbpf-devel          | libbpf-devel      | libbpf
run           | ELF files                 | <libelf.h>                | libelf-dev         | elfutils-libelf-devel | libelf-devel      | libelf
run           | compression               | <zlib.h>                  | zlib1g-dev         | zlib-devel            | zlib-devel        | zlib
run           | sending through io_uring  | ?<liburing.h>             | liburing-dev       | liburing-devel        | liburing-devel    | liburing
run           | JSON in C                 | <jansson.h>               | libjansson-dev     | jansson-devel         | libjansson-devel  | jansson
run           | BPF skeletons, vmlinux.h  | !have_kernel_tool bpftool | bpftool@           | bpftool               | bpftool           | bpf
run           | performance counters      | ?!have_kernel_tool perf   | perf@              | perf                  | perf              | perf
run           | links and addresses       | ip                        | iproute2           | iproute               | iproute2          | iproute2
run           | offloads                  | ethtool                   | ethtool
run           | namespaces                | unshare                   | util-linux
run           | entering namespaces       | nsenter                   | util-linux         | util-linux-core       | util-linux        | util-linux
run           | dropping privileges       | setpriv                   | util-linux
run           | Python 3.11 with venv    | !have_venv                | python@            | python@               | python@           | python
test          | checking shell scripts    | ?shellcheck               | shellcheck         | ShellCheck            | ShellCheck        | shellcheck
test          | a program to watch        | iperf3                    | iperf3             | iperf3                | iperf             | iperf3
test          | its client                | curl                      | curl
test          | other hosts               | ssh                       | openssh-client     | openssh-clients       | openssh-clients   | openssh
test          | formatting C              | ?clang-format             | clang-format       | clang-tools-extra     | clang-tools       | clang
test          | the bpftrace cookbook     | ?bpftrace                 | bpftrace
test          | second opinion            | ?!have_syscount           | libbpf-tools
test          | memory errors, races in C | !have_sanitizers          | libc6-dev gcc      | libasan libubsan libtsan | gcc               | gcc-libs
programs      | a server to watch         | nginx                     | nginx-light        | nginx                 | nginx             | nginx
programs      | its load                  | ?wrk                      | wrk
programs      | another server to watch   | ?redis-server             | redis-server       | redis                 | redis             | valkey
programs      | its client                | ?redis-benchmark          | redis-tools        | redis                 | redis             | valkey
simulate      | a simulated machine       | qemu-system-x86_64        | qemu-system-x86    | qemu-system-x86-core  | qemu-x86          | qemu-system-x86
simulate      | its kernel, unpacked      | zstd                      | zstd
kernels       | other kernels             | qemu-system-x86_64        | qemu-system-x86    | qemu-system-x86-core  | qemu-x86          | qemu-system-x86
kernels       | another processor         | qemu-system-aarch64       | qemu-system-arm    | qemu-system-aarch64-core | qemu-arm          | qemu-system-aarch64
kernels       | building for it           | !have_arm64_cc            | gcc-aarch64-linux-gnu libc6-dev-arm64-cross | gcc-aarch64-linux-gnu | -                 | aarch64-linux-gnu-gcc
kernels       | first program of a guest  | /bin/busybox              | busybox-static     | busybox               | busybox-static    | busybox
kernels       | modules of the guests     | depmod                    | kmod
kernels       | its first file system     | cpio                      | cpio
kernels       | compressed modules        | xz                        | xz-utils           | xz                    | xz                | xz
kernels       | packages of Debian        | dpkg                      | dpkg
kernels       | package lists of Debian   | apt-get                   | apt
kernels       | signatures of Debian      | !have_debian_keys         | debian-archive-keyring | debian-keyring        | -                 | debian-archive-keyring
consumers     | a browser for pages       | !have_chromium            | chromium
consumers     | what drives it            | node                      | nodejs
consumers     | its packages              | npm                       | npm                | nodejs-npm            | npm               | npm
consumers     | building pprof            | go                        | golang-go          | golang                | go                | go
distributions | roots of other Debians    | debootstrap               | debootstrap
distributions | their clones              | git                       | git
'
PATH=$PATH:/usr/sbin:/sbin
export DEBIAN_FRONTEND=noninteractive

usage() {
	cat <<-'END'
		usage: tools/deps.sh [--dry-run] [--as FILE] [run] [test] [kernels] [consumers] [distributions] [programs] [simulate]

		Installs missing packages with apt-get, dnf, zypper or pacman (as root).

		  run            packages to build and run copyscope (the default)
		  test           further packages for the tests
		  kernels        further packages for tests on other kernels (make check-kernels)
		  consumers      programs that open pages and exports (make check-consumers)
		  distributions  packages to make roots of other distributions (make check-distributions)
		  simulate       packages for copyscope simulate and --simulate
		  programs       servers that the live tests watch; their packages start services
		  --dry-run      only print what is missing, and the command that would install it
		  --as FILE      like --dry-run, for an empty machine with this /etc/os-release

		example: sudo tools/deps.sh run test
	END
}

die() {
	echo "deps: $*" >&2
	exit 1
}

have_header() {
	local file
	for file in "/usr/include/$1" /usr/include/*-linux-gnu*/"$1"; do
		[[ -e $file ]] && return 0
	done
	return 1
}

have_libbpf() { # 0.8 or newer; Ubuntu 22.04 has 0.5
	grep -q bpf_program__attach_kprobe_multi_opts /usr/include/bpf/libbpf.h
}

have_venv() { # Debian ships the venv module without the ensurepip that it needs
	"$here/python.sh" ensurepip
}

# A program of another kernel works, too. perf_stat.py and the Makefile find it although Ubuntu's wrapper does not start it.
have_kernel_tool() { # NAME
	"$1" version && return 0
	local file
	for file in /usr/lib/linux-tools/*/"$1" /usr/lib/linux-tools-*/"$1"; do
		[[ -x $file ]] && return 0
	done
	return 1
}

have_syscount() { # Debian 13 has renamed the programs of libbpf-tools
	[[ -x /usr/sbin/syscount || -x /usr/sbin/syscount-libbpf ]]
}

have_sanitizers() { # gcc prints a path only for a library that it has
	local name
	for name in asan ubsan tsan; do
		[[ $(gcc -print-file-name=lib$name.so) == */* ]] || return 1
	done
}

have_arm64_cc() { # compile a program, because the compiler may lack a C library
	echo 'int main(void) { return 0; }' | aarch64-linux-gnu-gcc -static -x c - -o /dev/null
}

have_chromium() {
	command -v chromium || command -v chromium-browser
}

have_debian_keys() {
	[[ -r /usr/share/keyrings/debian-archive-keyring.gpg ]]
}

# Succeeds if the check of a row finds its program, header or command.
is_installed() {
	[[ -z $as ]] || return 1
	case $1 in
	'<'*) have_header "${1//[<>]/}" ;;
	'!'*) eval "${1#!}" >/dev/null 2>&1 ;; # the table above is the only source of these commands
	*) command -v "$1" >/dev/null ;;
	esac
}

# Prints the missing rows of the requested groups as `?|what for|packages`; the ? is left out if the package is required.
find_missing() {
	local group purpose check debian fedora suse arch optional packages
	while IFS='|' read -r group purpose check debian fedora suse arch; do
		read -r group <<<"$group"
		[[ -z $group || $group == '#'* || " ${groups[*]} " != *" $group "* ]] && continue
		read -r check <<<"$check"
		read -r purpose <<<"$purpose"
		optional=${check%%[^?]*}
		check=${check#"$optional"}
		is_installed "$check" && continue
		case $family in
		fedora) packages=${fedora:-$debian} ;;
		suse) packages=${suse:-$debian} ;;
		arch) packages=${arch:-$debian} ;;
		*) packages=$debian ;;
		esac
		read -r packages <<<"$packages"
		[[ $check == '!'* ]] || purpose+=" ($check)"
		echo "$optional|$purpose|$packages"
	done <<<"$PACKAGES"
}

os_release() { # KEY
	sed -n "s/^$1=//p" "${as:-/etc/os-release}" 2>/dev/null | tr -d "\"'" || true
}

apt_has() {
	[[ -z $as && $(apt-cache policy "$1" 2>/dev/null) == *'Candidate: '[0-9]* ]]
}

# Prints the packages of perf or bpftool. Debian and Ubuntu from 25.10 have a package for each. Earlier, each kernel has its own, and a
# wrapper in linux-tools-common starts that of the running kernel.
kernel_tool() { # PACKAGE
	local kernel_package
	kernel_package=linux-tools-$(uname -r)
	if [[ $id == debian ]] || apt_has "$1"; then
		echo "$1"
	elif apt_has "$kernel_package"; then
		echo linux-tools-common "$kernel_package"
	else
		echo linux-tools-common linux-tools-generic
	fi
}

# Prints the packages of a Python 3.11 or newer. Where python3 is older, python.sh finds the newer one by its name.
python_packages() {
	case "$family $version" in
	'debian 22.04') echo python3.11 python3.11-venv ;;
	debian*) echo python3 python3-venv ;;
	fedora\ [89] | fedora\ [89].* | 'fedora 2023') echo python3.12 ;; # 2023: Amazon Linux
	'suse 15'*) echo python311 ;;
	*) echo python3 ;;
	esac
}

# Prints package names, one a line, with those of @ names for this release.
resolve() { # PACKAGES
	local package
	for package in $1; do
		case $package in
		python@) python_packages ;;
		perf@) kernel_tool linux-perf ;;
		bpftool@) kernel_tool bpftool ;;
		-) ;;
		*) echo "$package" ;;
		esac
	done | tr ' ' '\n'
}

# Prints the repository that contains headers of libraries on RHEL and its clones: CodeReady Builder, which is off by default. Its name
# on RHEL depends on the source of its packages.
crb() {
	local name=codeready-builder-for-rhel-${version%%.*} listed=
	case $id in
	fedora | amzn) ;;
	ol) echo "ol${version%%.*}_codeready_builder" ;;
	rhel)
		[[ -n $as ]] || listed=$(dnf -q repolist --all | grep -oE "^$name-($(uname -m)|rhui|$(uname -m)-rhui)-rpms" | head -1) || true
		echo "${listed:-$name-$(uname -m)-rpms}"
		;;
	*) if [[ $version == 8* ]]; then echo powertools; else echo crb; fi ;;
	esac
}

# Prints the command that installs packages, without their names. Unknown packages are skipped if the package manager can do that.
installer() {
	local repository
	case $family in
	# Another program, such as unattended-upgrades, may hold the lock for some minutes.
	debian) echo apt-get -q -o DPkg::Lock::Timeout=300 install -y --no-install-recommends ;;
	fedora)
		repository=$(crb)
		# RHEL up to 10 has dnf 4, with another option for this than dnf 5 (dnf5.conf-deprecated(5)).
		case ${version%%.*} in
		8 | 9 | 10 | 2023) echo dnf -q install -y --setopt=strict=0 ${repository:+"--enablerepo=$repository"} ;;
		*) echo dnf -q install -y --skip-unavailable ;;
		esac
		;;
	suse) echo zypper --non-interactive --ignore-unknown install --no-recommends ;;
	arch) echo pacman -S --needed --noconfirm ;;
	esac
}

# Succeeds for an available package. apt-get and pacman install nothing if one name is unknown.
known() { # PACKAGE
	[[ -z $as ]] || return 0
	case $family in
	debian) apt_has "$1" ;;
	arch) pacman -Si "$1" >/dev/null 2>&1 ;;
	esac
}

list_wanted() {
	local packages package
	while IFS='|' read -r _ _ packages; do
		for package in $(resolve "$packages"); do
			if known "$package"; then echo "$package"; fi
		done
	done <<<"$missing" | LC_ALL=C sort -u
}

groups=()
dry_run='' as=''
while [[ $# -gt 0 ]]; do
	case $1 in
	run | test | kernels | consumers | distributions | programs | simulate) groups+=("$1") ;;
	--dry-run) dry_run=yes ;;
	--as)
		[[ -r ${2:-} ]] || die "--as ${2:-}: not a readable file; give an /etc/os-release"
		dry_run=yes as=$2
		shift
		;;
	-h | --help) usage && exit 0 ;;
	*) usage >&2 && exit 2 ;;
	esac
	shift
done
[[ ${#groups[@]} -gt 0 ]] || groups=(run)

id=$(os_release ID) version=$(os_release VERSION_ID)
case " $id $(os_release ID_LIKE) " in
*' debian '* | *' ubuntu '*) family=debian ;;
*' fedora '* | *' rhel '*) family=fedora ;;
*suse*) family=suse ;;
*' arch '*) family=arch ;;
*) family=other ;;
esac

missing=$(find_missing)
[[ -n $missing ]] || exit 0
echo "deps: missing:"
while IFS='|' read -r optional purpose packages; do
	printf "  %-52s %s\n" "$purpose${optional:+, optional}" "${packages//@/}"
done <<<"$missing"
# If only optional packages are missing, skip the package manager, which is slow.
[[ $'\n'$missing == *$'\n|'* ]] || exit 0
[[ $family != other ]] || die "${id:-this machine}: unknown distribution; install the above with its package manager"

# sudo removes the proxy variables, but downloads may need them.
while IFS= read -r proxy; do export "${proxy?}"; done < <("$here/proxies.sh")

if [[ -n $dry_run ]]; then
	mapfile -t wanted < <(list_wanted)
	echo "deps: would run: $(installer) ${wanted[*]}"
	exit 0
fi
[[ $EUID -eq 0 ]] || die "not root; run sudo tools/deps.sh ${groups[*]}"
if [[ $family == debian ]]; then
	apt-get -q update || die "apt-get update: failed; check the network, and /etc/apt/sources.list"
fi
read -ra install < <(installer)
mapfile -t wanted < <(list_wanted)
echo "deps: running: ${install[*]} ${wanted[*]}"
"${install[@]}" "${wanted[@]}" || echo "deps: ${install[0]}: failed (above)" >&2

hash -r
missing=$(find_missing)
[[ $'\n'$missing != *$'\n|'* ]] || die "still missing: $(sed -n 's/@//g; s/^|\(.*\)|/\1: /p' <<<"$missing" | paste -sd';' | sed 's/;/; /g'); install them by hand"
