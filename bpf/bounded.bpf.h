/* SPDX-License-Identifier: GPL-2.0 */
/* bounded.bpf.h - an index that the verifier knows to be small enough, whatever the compiler made of the code before. */
#ifndef COPYSCOPE_BOUNDED_BPF_H
#define COPYSCOPE_BOUNDED_BPF_H

/*
 * index, at most count - 1.
 *
 * The compiler drops a test whose outcome it knows, and moves the others: to a copy of the value in another register, or to a part
 * of it (clang 19 compared a slot with its last one before the two lowest bits were in it). The verifier knows of a register what
 * was tested of that very register or an unchanged copy, and what it can work out from the bounds of both operands (kernel:
 * Documentation/bpf/verifier.rst, "Register value tracking"), which is less than the compiler knows; where the rest is not enough
 * the program is refused: "invalid access to map value". So the bound is set in assembler, which the compiler takes as it is, in
 * the register that it then has to index with.
 */
#define BOUNDED(index, count) ({ \
	__u64 bounded_ = (index); \
	_Static_assert(!((count) & ((count) - 1)), "a power of two"); \
	asm volatile("%0 &= %1" : "+r"(bounded_) : "i"((count) - 1)); \
	bounded_; \
})

/* The same of any other count; a branch more. */
#define CLAMPED(index, count) ({ \
	__u64 clamped_ = (index); \
	asm volatile("if %0 < %1 goto +1; %0 = %2" : "+r"(clamped_) : "i"(count), "i"((count) - 1)); \
	clamped_; \
})

#endif
