/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TRAFFIC_MEMORY_H
#define TRAFFIC_MEMORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "failure.h"

/* Facts about this machine's memory, read from the kernel. These functions change no setting. */
size_t memory__huge_page_bytes(void);
uint64_t memory__huge_pages_free(void);
/* Return the value of a line `key: N kB` of /proc/meminfo in bytes, or 0 if there is no such line. */
uint64_t memory__meminfo_bytes(const char *key);
/* Return true if transparent huge pages are switched off on this machine. */
bool memory__thp_never(void);
/* Return the bytes of this process that are on huge pages, or -1 if the kernel does not report them. */
int64_t memory__huge_bytes_in_use(void);

/* Return zeroed memory of `bytes` bytes, or NULL on failure. */
void *memory__map(size_t bytes);
/*
 * Return zeroed memory on huge pages, or NULL on failure. If `reserved` is set, use hugetlb pages instead of
 * transparent huge pages.
 */
void *memory__map_huge(size_t bytes, bool reserved);

/*
 * Budget of locked memory. MSG_ZEROCOPY charges (size >> 12) + 2 pages per send to RLIMIT_MEMLOCK, which all processes of
 * a user share (mm_account_pinned_pages()). SEND_ZC of io_uring does the same, unless its buffer is registered
 * (io_notif_account_mem()). A process with CAP_IPC_LOCK in the initial user namespace is exempt.
 */
#define MEMLOCK_UNLIMITED UINT64_MAX
uint64_t memlock__limit_bytes(void);
bool memlock__enforced(void);
uint64_t memlock__send_bytes(size_t size_bytes);
/* Return 0 if a zero-copy send of `size_bytes` fits the budget, else -ENOBUFS with the arithmetic in `failure`. */
int memlock__check(size_t size_bytes, struct failure *failure);

#endif
