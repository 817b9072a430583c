# shellcheck shell=sh
# Holds what one run needs on another machine, and takes all of it away again. A host's own sh runs this text (POSIX,
# with coreutils or busybox) as root; $1 is what ssh said of the connection, $2 a directory for what is brought.
#
# It says one line of facts. It then reads one line: the bytes and the SHA-256 of a bundle, and the bundle; it says
# `ready`. From then on a byte a second says that somebody is there. The end of that, or silence, ends every program
# that was started out of the bundle, and removes it: a connection that is cut sends no signal.
umask 077
LC_ALL=C
export LC_ALL
directory=
finish() {
	trap '' HUP INT TERM PIPE
	[ -n "$directory" ] || return
	# shellcheck disable=SC2012  # of names that are numbers
	ls -l /proc/[0-9]*/exe 2>/dev/null | while read -r line; do
		case $line in
		*" -> $directory/"*)
			pid=${line#*/proc/}
			kill -KILL "${pid%%/*}" 2>/dev/null
			;;
		esac
	done
	rm -rf "$directory"
}
give_up() {
	echo "$1" >&2
	exit 1
}
trap finish EXIT
trap 'exit 1' HUP INT TERM PIPE

uid=${SUDO_UID:-$(id -u)} gid=${SUDO_GID:-$(id -g)}
echo "copyscope $(uname -m) $uid $gid $1"
read -r size sum || exit 0
directory=$(mktemp -d "$2/copyscope-XXXXXXXXXX") || give_up "$2: no directory could be made there"
head -c "$size" > "$directory/bundle" || give_up "$2: no room for the bundle ($size bytes)"
case $(sha256sum < "$directory/bundle") in
"$sum "*) ;;
*) give_up "the bundle arrived damaged: its SHA-256 is another" ;;
esac
tar -xzf "$directory/bundle" -C "$directory" copyscope/.output/collector copyscope/.output/traffic ||
	give_up "$2: no room for what is in the bundle"
rm -f "$directory/bundle"
mv "$directory"/copyscope/.output/* "$directory" || exit 1
"$directory/traffic" --help > /dev/null || give_up "$2: nothing that is brought there can be run (noexec?)"
# The traffic runs as that user.
chown "$uid:$gid" "$directory" || exit 1
echo "ready $directory"

# Counted in looks of a second each: a machine that stood still for long has not been silent for long.
silent=0
while [ "$silent" -lt 4 ]; do
	if beat=$(timeout 1 head -c 1); then
		[ -n "$beat" ] || exit 0
		silent=0
	else
		silent=$((silent + 1))
	fi
done
