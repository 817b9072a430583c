#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# proxies.sh [NAME]: prints the proxy variables of the user who called sudo, as lines NAME=VALUE, or the value of NAME. sudo removes
# them from the environment (env_reset in sudoers(5)), but the environment of the sudo process still has them.
[ -n "${SUDO_UID:-}" ] || exit 0
pid=$PPID
while [ "${pid:-0}" -gt 1 ] && [ "$(cat "/proc/$pid/comm")" != sudo ]; do
	pid=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$pid/status")
done
[ "${pid:-0}" -gt 1 ] || exit 0
tr '\0' '\n' 2>/dev/null <"/proc/$pid/environ" |
	grep -E '^((https?|ftp|all|no)_proxy|(HTTPS?|FTP|ALL|NO)_PROXY)=.' |
	if [ $# -eq 0 ]; then cat; else sed -n "s/^$1=//p"; fi
