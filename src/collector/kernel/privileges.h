/* SPDX-License-Identifier: GPL-2.0 */
/* privileges.h - what the collector gives up when its programs are loaded, and when it has read the kernel's symbols. */
#ifndef COLLECTOR_PRIVILEGES_H
#define COLLECTOR_PRIVILEGES_H

#include <stdbool.h>

/*
 * Keeps what attaching, counting and sampling need, as far as it is there, for good: CAP_BPF and CAP_PERFMON. Until the symbols
 * are read CAP_SYSLOG (/proc/kallsyms) and CAP_SYS_ADMIN (other BPF programs), too. CAP_SYS_ADMIN stays where one of the first
 * two is missing, or does not do here. Returns 0 or -errno. Of the calling thread and of those that it starts later.
 * What it may call is seal.h's.
 */
int privileges__drop(bool symbols_read);

#endif
