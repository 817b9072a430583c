#!/usr/bin/env bash
# SPDX-License-Identifier: GPL-2.0-only
# Installs a built tree for all users, or uninstalls it; called by make.
#
#   tools/install.sh install DESTDIR PREFIX      PREFIX/lib/copyscope, a link in PREFIX/bin, man pages, completions
#   tools/install.sh uninstall DESTDIR PREFIX    removes exactly these files
set -euo pipefail
umask 022
cd "$(dirname "$(readlink -f "$0")")/.."

die() {
	echo "install: $*" >&2
	exit 1
}

# Prints the installed files outside of lib/copyscope: the link, completions of shells, and man pages.
files_outside() { # PREFIX
	echo "$1/bin/copyscope"
	echo "$1/share/bash-completion/completions/copyscope"
	echo "$1/share/zsh/site-functions/_copyscope"
	echo "$1/share/fish/vendor_completions.d/copyscope.fish"
	compgen -G "$1/share/man/man1/copyscope*.1" || true
}

# Prints the version and path of the Python for the installed environment: the system's if it has the same version, else that of .venv.
interpreter() {
	local version
	version=$(.venv/bin/python3 -c 'import sys; print("%d.%d" % sys.version_info[:2])')
	if /usr/bin/python3 -c "import sys; sys.exit('%d.%d' % sys.version_info[:2] != '$version')" 2>/dev/null; then
		echo "$version /usr/bin/python3"
	else
		echo "$version $(readlink -f .venv/bin/python3)"
	fi
}

install_into() {
	local destdir=$1 prefix=$2 to=$1$2 lib=$1$2/lib/copyscope version python
	[[ $prefix == /* ]] || die "PREFIX $prefix: not an absolute path; write one such as /usr/local"
	read -r version python < <(interpreter)
	pages=$(mktemp -d)
	trap 'rm -rf "$pages"' EXIT
	uninstall_from "$destdir" "$prefix"
	install -d "$lib/.output" "$to/bin" "$lib/.venv/bin" "$lib/.venv/lib/python$version/site-packages"
	cp -r --no-preserve=mode,ownership bin tools experiments "$lib"
	find "$lib" -name __pycache__ -prune -exec rm -rf {} +
	rm "$lib"/tools/{built_of.sh,copyright,dist.mk,dist.py,install.sh,pinned.sh,profile.py,wheel.py}
	install -t "$lib/.output" .output/traffic .output/collector
	install -m 644 -t "$lib/.output" .output/xdp_pass.bpf.o .output/built-of.json
	if [[ -x .output/guest/init ]]; then cp -r --no-preserve=ownership .output/guest "$lib/.output"; fi
	chmod 755 "$lib"/bin/* "$lib"/tools/*.sh "$lib"/tools/bpftrace/*.bt
	# A virtual environment is a link to the interpreter, pyvenv.cfg, and packages: the pinned ones, and ours by its path.
	ln -s "$python" "$lib/.venv/bin/python3"
	printf 'home = %s\ninclude-system-site-packages = false\nversion = %s\n' "$(dirname "$python")" "$version" \
		> "$lib/.venv/pyvenv.cfg"
	.venv/bin/python3 -I -m copyscope.commands.packages "$lib/.venv/lib/python$version/site-packages"
	echo ../../../../tools > "$lib/.venv/lib/python$version/site-packages/copyscope.pth"
	touch "$lib/.venv/.package"
	# Compile now, because only root can write bytecode there later.
	.venv/bin/python3 -m compileall -q -s "$destdir" "$lib/tools"
	ln -s ../lib/copyscope/bin/copyscope "$to/bin/copyscope"
	.venv/bin/python3 -I -m copyscope.commands.manual "$pages"
	install -D -m 644 -t "$to/share/man/man1" "$pages"/*.1
	install -D -m 644 "$pages/copyscope.bash" "$to/share/bash-completion/completions/copyscope"
	install -D -m 644 "$pages/copyscope.zsh" "$to/share/zsh/site-functions/_copyscope"
	install -D -m 644 "$pages/copyscope.fish" "$to/share/fish/vendor_completions.d/copyscope.fish"
	echo "install: copyscope is in $to/bin, its files are in $lib"
}

uninstall_from() {
	local file
	rm -rf "$1$2/lib/copyscope"
	while read -r file; do rm -f "$file"; done < <(files_outside "$1$2")
}

case ${1:-} in
install) install_into "$2" "$3" ;;
uninstall) uninstall_from "$2" "$3" ;;
*) die "usage: tools/install.sh install|uninstall DESTDIR PREFIX" ;;
esac
