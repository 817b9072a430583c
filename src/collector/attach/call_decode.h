/* SPDX-License-Identifier: GPL-2.0 */
/* call_decode.h - direct calls in the text of a function. Pure. */
#ifndef COLLECTOR_CALL_DECODE_H
#define COLLECTOR_CALL_DECODE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Where a function may be called: at its address, or anywhere in a range that leads into it. */
struct call_target {
	uint64_t low;
	/* The last of them. */
	uint64_t high;
};

/* The direct calls of an architecture. */
struct call_code {
	/* Of one call, in bytes. */
	size_t length;
	/* Calls are at multiples of it from the beginning of a function. */
	size_t step;
	bool (*decode)(const unsigned char *text, uint64_t address, uint64_t *target);
};
extern const struct call_code call_code_x86, call_code_arm64;
/* Of this machine; NULL where its calls are not known here. */
extern const struct call_code *const call_code_here;

/*
 * The offset, at or after `from` (any byte), of the next direct call of one of the targets in the text that is loaded at `address`; negative
 * when there is none. A call that ends the text is none: nothing can be hooked after it.
 *
 * On x86 every byte is tried, also inside of instructions. That four arbitrary bytes point at one of the targets happens once
 * in some thousand million; the kernel refuses a probe that is not on an instruction, and then nothing is hooked this way.
 */
long call_decode__next(const struct call_code *code, const unsigned char *text, size_t size, uint64_t address, size_t from,
		       const struct call_target *targets, size_t count);

#endif
