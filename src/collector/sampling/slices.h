/* SPDX-License-Identifier: GPL-2.0 */
/* slices.h - how long a process runs before it leaves the CPU. */
#ifndef COLLECTOR_SLICES_H
#define COLLECTOR_SLICES_H

#include <stdint.h>
#include <sys/types.h>

/* Mean over all its threads so far (/proc/PID/task/TID/schedstat); 0 when that is unknown. */
uint64_t slices__mean_ns(pid_t pid);

#endif
