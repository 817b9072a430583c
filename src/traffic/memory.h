/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TRAFFIC_MEMORY_H
#define TRAFFIC_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "failure.h"

/* What the kernel says of this machine's memory. Reading only: nothing here changes a setting. */
size_t memory__huge_page_bytes(void);
uint64_t memory__huge_pages_free(void);
/* A `<key>: N kB` line of /proc/meminfo, in bytes; 0 when it is not there. */
uint64_t memory__meminfo_bytes(const char *key);
bool memory__thp_never(void);
/* Bytes of this process that really lie on huge pages; -1 when the kernel does not tell. */
int64_t memory__huge_bytes_in_use(void);

/* Zeroed memory. NULL on failure. */
void *memory__map(size_t bytes);
/* Zeroed memory on huge pages (reserved ones, or transparent ones asked for). NULL on failure. */
void *memory__map_huge(size_t bytes, bool reserved);

/*
 * The memlock budget: MSG_ZEROCOPY accounts (size >> 12) + 2 pages per send against
 * RLIMIT_MEMLOCK, for all processes of the user together (mm_account_pinned_pages(); SEND_ZC of
 * io_uring, where the buffer is not registered, likewise: io_notif_account_mem()), and
 * not at all for CAP_IPC_LOCK in the initial user namespace.
 */
#define MEMLOCK_UNLIMITED UINT64_MAX
uint64_t memlock__limit_bytes(void);
bool memlock__enforced(void);
uint64_t memlock__send_bytes(size_t size_bytes);
/* Does one send of so many bytes fit? 0 or -ENOBUFS with the arithmetic. */
int memlock__check(size_t size_bytes, struct failure *failure);

#endif
