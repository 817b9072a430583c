/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * privileges.h - privileges that the collector gives up once its programs are loaded, and once it has read the
 * kernel's symbols.
 */
#ifndef COLLECTOR_PRIVILEGES_H
#define COLLECTOR_PRIVILEGES_H

#include <stdbool.h>

/*
 * Permanently drop all capabilities except those that attaching, counting and sampling need. The needed capabilities
 * are CAP_BPF and CAP_PERFMON; until the symbols are read, also CAP_SYSLOG (/proc/kallsyms) and CAP_SYS_ADMIN (other
 * BPF programs). CAP_SYS_ADMIN stays if one of the first two is missing or does not suffice on this machine. Applies to
 * the calling thread and to threads that it starts later. Return 0 or -errno. seal.h restricts the system calls.
 */
int privileges__drop(bool symbols_read);

#endif
