#!/usr/bin/env bash
# Installs what copyscope needs from the distribution: says what is missing first, does nothing when nothing is.
set -euo pipefail

# The one list of packages. "found by" is tried before any package manager is asked, so that a machine that has
# everything, however it came there, costs a few milliseconds:
#   NAME  a program   <FILE>  a header   !COMMAND  a command that must succeed
# perf@ and bpftool@ stand for packages whose names depend on the kernel (see resolve()).
PACKAGES='
# group | what for                          | found by             | Debian, Ubuntu   | Fedora
run     | C compiler                        | gcc                  | gcc              | gcc
run     | C library headers                 | <stdio.h>            | libc6-dev        | glibc-devel
run     | kernel headers                    | <linux/errqueue.h>   | linux-libc-dev   | kernel-headers
run     | build                             | make                 | make             | make
run     | BPF compiler                      | clang                | clang            | clang
run     | BPF object tools                  | llvm-strip           | llvm             | llvm
run     | finding libraries                 | pkg-config           | pkg-config       | pkgconf-pkg-config
run     | BPF loader                        | <bpf/libbpf.h>       | libbpf-dev       | libbpf-devel
run     | ELF files                         | <libelf.h>           | libelf-dev       | elfutils-libelf-devel
run     | compression                       | <zlib.h>             | zlib1g-dev       | zlib-devel
run     | sending through io_uring (optional) | <liburing.h>    | liburing-dev     | liburing-devel
run     | JSON in C                         | <jansson.h>          | libjansson-dev   | jansson-devel
run     | BPF skeletons, vmlinux.h          | !have_kernel_tool bpftool | bpftool@         | bpftool
run     | performance counters              | !have_kernel_tool perf | perf@            | perf
run     | links and addresses               | ip                   | iproute2         | iproute
run     | offloads                          | ethtool              | ethtool          | ethtool
run     | namespaces                        | unshare              | util-linux       | util-linux
run     | entering namespaces               | nsenter              | util-linux       | util-linux-core
run     | dropping privileges               | setpriv              | util-linux       | util-linux
run     | Python                            | python3              | python3          | python3
run     | Python environments               | !have_venv           | python3-venv     | python3
test    | checking shell scripts            | shellcheck           | shellcheck       | ShellCheck
test    | a program to watch                | iperf3               | iperf3           | iperf3
test    | its client                        | curl                 | curl             | curl
test    | other hosts                       | ssh                  | openssh-client   | openssh-clients
test    | formatting C                      | clang-format         | clang-format     | clang-tools-extra
test    | the bpftrace cookbook             | bpftrace             | bpftrace         | bpftrace
test    | second opinion                    | !have_syscount       | libbpf-tools     | libbpf-tools
test    | memory errors and races in C      | !have_sanitizers     | libc6-dev gcc    | libasan libubsan libtsan
programs | a server to watch                 | nginx                | nginx-light      | nginx
programs | its load                           | wrk                  | wrk            | wrk
programs | another server to watch           | redis-server         | redis-server     | redis
programs | its client                        | redis-benchmark      | redis-tools      | redis
simulate | a simulated machine              | qemu-system-x86_64   | qemu-system-x86  | qemu-system-x86-core
simulate | its kernel, unpacked             | zstd                 | zstd             | zstd
kernels | other kernels                     | qemu-system-x86_64   | qemu-system-x86  | qemu-system-x86-core
kernels | another processor            | qemu-system-aarch64  | qemu-system-arm  | qemu-system-aarch64-core
kernels | building for it                  | !have_arm64_cc       | gcc-aarch64-linux-gnu libc6-dev-arm64-cross | gcc-aarch64-linux-gnu
consumers | a browser for pages          | !have_chromium       | chromium         | chromium
consumers | what drives it               | node                 | nodejs           | nodejs
consumers | its packages                 | npm                  | npm              | nodejs-npm
consumers | building pprof               | go                   | golang-go        | golang
distributions | roots of other Debians  | debootstrap         | debootstrap      | debootstrap
distributions | their clones            | git                 | git              | git
kernels | first program of a guest          | /bin/busybox         | busybox-static   | busybox
kernels | modules of the guests             | depmod               | kmod             | kmod
kernels | first file system of a guest      | cpio                 | cpio             | cpio
kernels | compressed modules                | xz                   | xz-utils         | xz
kernels | packages of Debian                | dpkg                 | dpkg             | dpkg
kernels | package lists of Debian           | apt-get              | apt              | apt
kernels | signatures of Debian              | !have_debian_keys    | debian-archive-keyring | debian-keyring
'
PATH=$PATH:/usr/sbin:/sbin
export DEBIAN_FRONTEND=noninteractive

usage() {
	cat <<-'END'
		usage: tools/deps.sh [--dry-run] [run] [test] [kernels] [consumers] [distributions] [programs] [simulate]

		Installs missing packages with apt-get or dnf (as root).

		  run        what building and profiling need (the default)
		  test       what the tests need besides
		  kernels    what tests on other kernels need besides (make check-kernels)
		  consumers  what pages and exports are opened with (make check-consumers)
		  distributions  what roots of other distributions need (make check-distributions)
		  simulate   the machine that is simulated with --simulate
		  programs   servers that the live tests watch; their packages start services, so nobody gets them unasked
		  --dry-run  only say what is missing

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

have_venv() { # Debian ships the venv module without the ensurepip that it needs
	local file
	for file in /usr/lib/python3*/ensurepip/__init__.py /usr/lib64/python3*/ensurepip/__init__.py \
		/usr/local/lib/python3*/ensurepip/__init__.py; do
		[[ -e $file ]] && return 0
	done
	return 1
}

# A build for another kernel is enough: it is found behind Ubuntu's wrapper (perf_stat.py, Makefile).
have_kernel_tool() { # NAME
	"$1" version && return 0
	local file
	for file in /usr/lib/linux-tools/*/"$1" /usr/lib/linux-tools-*/"$1"; do
		[[ -x $file ]] && return 0
	done
	return 1
}

have_syscount() { # Debian 13 has renamed what libbpf-tools brings
	[[ -x /usr/sbin/syscount || -x /usr/sbin/syscount-libbpf ]]
}

have_sanitizers() { # gcc prints a path only for a library that it has
	local name
	for name in asan ubsan tsan; do
		[[ $(gcc -print-file-name=lib$name.so) == */* ]] || return 1
	done
}

have_arm64_cc() { # the compiler alone has no C library
	echo 'int main(void) { return 0; }' | aarch64-linux-gnu-gcc -static -x c - -o /dev/null
}

have_chromium() {
	command -v chromium || command -v chromium-browser
}

have_debian_keys() {
	[[ -r /usr/share/keyrings/debian-archive-keyring.gpg ]]
}

found() {
	case $1 in
	'<'*) have_header "${1//[<>]/}" ;;
	'!'*) eval "${1#!}" >/dev/null 2>&1 ;; # the table above is the only source of these commands
	*) command -v "$1" >/dev/null ;;
	esac
}

# Missing rows of the wanted groups, as `what for|packages` of the family $1.
find_missing() {
	local group purpose check debian fedora packages
	shopt -s extglob
	while IFS='|' read -r group purpose check debian fedora; do
		group=${group%%*( )}
		[[ -z $group || $group == '#'* || " ${groups[*]} " != *" $group "* ]] && continue
		check=${check##*( )}
		check=${check%%*( )}
		found "$check" && continue
		packages=$debian
		[[ $1 != fedora ]] || packages=$fedora
		packages=${packages##*( )}
		purpose=${purpose##*( )}
		purpose=${purpose%%*( )}
		[[ $check == '!'* ]] || purpose+=" ($check)"
		echo "$purpose|${packages%%*( )}"
	done <<<"$PACKAGES"
}

apt_has() {
	[[ $(apt-cache policy "$1" 2>/dev/null) == *'Candidate: '[0-9]* ]]
}

# perf and bpftool are a package of their own on Debian; on Ubuntu they come with each kernel's tools, behind a
# wrapper in linux-tools-common that looks for the running kernel's.
resolve() {
	local package release
	release=$(uname -r)
	for package in "$@"; do
		case $package in
		perf@ | bpftool@)
			if [[ $package == perf@ ]] && apt_has linux-perf; then
				echo linux-perf
			elif [[ $package == bpftool@ ]] && apt_has bpftool; then
				echo bpftool
			elif apt_has "linux-tools-$release"; then
				echo linux-tools-common "linux-tools-$release"
			else
				echo linux-tools-common linux-tools-generic
			fi
			;;
		*) echo "$package" ;;
		esac
	done | tr ' ' '\n' | sort -u
}

check_python() {
	command -v python3 >/dev/null || return 0 # still missing: only after --dry-run
	python3 -ISc 'import sys; sys.exit(sys.version_info < (3, 11))' ||
		die "python3: $(python3 -V 2>&1) is too old: install Python 3.11 or newer and put it first in PATH"
}

groups=()
dry_run=
for argument in "$@"; do
	case $argument in
	run | test | kernels | consumers | distributions | programs | simulate) groups+=("$argument") ;;
	--dry-run) dry_run=yes ;;
	-h | --help) usage && exit 0 ;;
	*) usage >&2 && exit 2 ;;
	esac
done
[[ ${#groups[@]} -gt 0 ]] || groups=(run)

family=other
if command -v apt-get >/dev/null; then
	family=debian
elif command -v dnf >/dev/null; then
	family=fedora
fi

missing=$(find_missing "$family")
if [[ -z $missing ]]; then
	check_python
	exit 0
fi
echo "deps: missing:"
while IFS='|' read -r purpose packages; do
	printf "  %-45s %s\n" "$purpose" "${packages//@/}"
done <<<"$missing"
[[ $family != other ]] || die "no apt-get and no dnf here: install the above with your package manager"

mapfile -t wanted < <(cut -d'|' -f2 <<<"$missing" | tr ' ' '\n' | sort -u)
if [[ -n $dry_run ]]; then
	[[ $family != debian ]] || mapfile -t wanted < <(resolve "${wanted[@]}")
	echo "deps: would install: ${wanted[*]}"
	exit 0
fi
[[ $EUID -eq 0 ]] || die "not root: run: sudo tools/deps.sh ${groups[*]}"

case $family in
debian)
	apt-get -q update || die "apt-get update: failed: check the network, and /etc/apt/sources.list"
	mapfile -t wanted < <(resolve "${wanted[@]}")
	install=(apt-get -q install -y --no-install-recommends)
	;;
fedora)
	install=(dnf -q install -y)
	;;
esac
echo "deps: installing: ${wanted[*]}"
"${install[@]}" "${wanted[@]}" || die "${install[0]}: failed (above): install by hand: ${wanted[*]}"

hash -r
missing=$(find_missing "$family")
[[ -z $missing ]] || die "still missing after the installation: ${missing//$'\n'/, }"
check_python
