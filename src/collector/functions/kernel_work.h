/* SPDX-License-Identifier: GPL-2.0-only */
/* kernel_work.h - makes the kernel work, to test whether a counter counts. */
#ifndef COLLECTOR_KERNEL_WORK_H
#define COLLECTOR_KERNEL_WORK_H

/*
 * Copy 8 MiB of new memory into a file in memory and back into new memory, which causes load misses and page faults
 * in kernel mode. Return 0 or -errno.
 */
int kernel_work(void);

#endif
