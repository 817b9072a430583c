/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * bounded.bpf.h - bounds for array indices that the verifier accepts, whatever the compiler does to the code before.
 */
#ifndef COPYSCOPE_BOUNDED_BPF_H
#define COPYSCOPE_BOUNDED_BPF_H

/*
 * Reduces index to at most count - 1.
 *
 * The compiler drops a check whose outcome it knows. It may also apply a check to a copy of the value in another
 * register, or to a part of it: clang 19 compared a slot with the last one before adding the two lowest bits. The
 * verifier knows only what was checked in that register or in an unchanged copy, and what follows from the bounds of
 * both operands (Documentation/bpf/verifier.rst, "Register value tracking"). Where that is not enough, it refuses the
 * program: "invalid access to map value". So assembler code, which the compiler does not change, sets the bound in
 * the register that is the index.
 */
#define BOUNDED(index, count) ({ \
	__u64 bounded_ = (index); \
	_Static_assert(!((count) & ((count) - 1)), "a power of two"); \
	asm volatile("%0 &= %1" : "+r"(bounded_) : "i"((count) - 1)); \
	bounded_; \
})

/* Like BOUNDED(), for a count that is not a power of two. It costs one more branch. */
#define CLAMPED(index, count) ({ \
	__u64 clamped_ = (index); \
	asm volatile("if %0 < %1 goto +1; %0 = %2" : "+r"(clamped_) : "i"(count), "i"((count) - 1)); \
	clamped_; \
})

#endif
