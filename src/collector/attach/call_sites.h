/* SPDX-License-Identifier: GPL-2.0-only */
/* call_sites.h - finds where one kernel function calls another, in the text of the running kernel. */
#ifndef COLLECTOR_CALL_SITES_H
#define COLLECTOR_CALL_SITES_H

#include <stddef.h>
#include <stdint.h>

struct ksyms;

#define CALL_SITES_MAX 8
#define SYMBOL_MAX 128

/* A direct call, `offset` bytes into a function. The next instruction is at offset `after`. */
struct call_site {
	char function[64];
	size_t offset;
	size_t after;
};

/*
 * Find all calls in `callers` to one of `callees` (both are lists such as a|b|c); names that this kernel lacks are
 * ignored. Return the number of calls, or 0 and the reason if there is none or if it cannot be determined.
 */
int call_sites__find(struct call_site sites[CALL_SITES_MAX], const struct ksyms *ksyms, const char *callers,
		     const char *callees, char *reason, size_t reason_size);

#endif
