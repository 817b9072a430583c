/* SPDX-License-Identifier: GPL-2.0 */
/* call_sites.h - where one kernel function calls another, found in the text of the running kernel. */
#ifndef COLLECTOR_CALL_SITES_H
#define COLLECTOR_CALL_SITES_H

#include <stddef.h>
#include <stdint.h>

struct ksyms;

#define CALL_SITES_MAX 8
#define SYMBOL_MAX 128

/* A direct call: `offset` bytes into a function. The instruction after it is at `after`. */
struct call_site {
	char function[64];
	size_t offset;
	size_t after;
};

/*
 * All calls in `callers` (a|b|c) to one of `callees`, those that this kernel has.
 * Returns how many there are; 0 with the reason when there is none, or when it cannot be known.
 */
int call_sites__find(struct call_site sites[CALL_SITES_MAX], const struct ksyms *ksyms, const char *callers,
		     const char *callees, char *reason, size_t reason_size);

#endif
