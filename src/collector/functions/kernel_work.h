/* SPDX-License-Identifier: GPL-2.0 */
/* kernel_work.h - something for the kernel to do, to see whether a counter counts it. */
#ifndef COLLECTOR_KERNEL_WORK_H
#define COLLECTOR_KERNEL_WORK_H

/*
 * Copies 8 MiB of new memory into a file in memory and back into new memory: loads that miss, and page faults in kernel
 * mode. Returns 0 or -errno.
 */
int kernel_work(void);

#endif
