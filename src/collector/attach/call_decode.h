/* SPDX-License-Identifier: GPL-2.0-only */
/* call_decode.h - finds direct calls in the machine code of a function. Its functions have no side effects. */
#ifndef COLLECTOR_CALL_DECODE_H
#define COLLECTOR_CALL_DECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/*
 * Address range. A call to any address in it counts as a call to the function: the range holds the function's entry
 * point, or code that only jumps to it.
 */
struct call_target {
	uint64_t low;
	/* Last address, inclusive. */
	uint64_t high;
};

/* Encoding of direct calls on an architecture. */
struct call_code {
	/* Length of a call, in bytes. */
	size_t length;
	/* The offset of a call from the start of its function is a multiple of this number of bytes. */
	size_t step;
	bool (*decode)(const unsigned char *text, uint64_t address, uint64_t *target);
};
extern const struct call_code call_code_x86, call_code_arm64;
/* Encoding on this machine, or NULL if it is not implemented. */
extern const struct call_code *const call_code_here;

/*
 * Return the offset of the next direct call of one of the targets, at or after `from` (any byte). The text is loaded
 * at `address`. Return a negative number if there is none. A call at the very end of the text does not count, because
 * nothing after it can be hooked.
 *
 * On x86 every byte is tried, even inside instructions. The chance that four arbitrary bytes point at a target is one
 * in some thousand million. The kernel would refuse a probe that is not on an instruction, and nothing would be
 * hooked in this way.
 */
long call_decode__next(const struct call_code *code, const unsigned char *text, size_t size, uint64_t address, size_t from,
		       const struct call_target *targets, size_t count);

#endif
