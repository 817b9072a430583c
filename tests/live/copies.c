// SPDX-License-Identifier: GPL-2.0-only
/*
 * copies.c - spends half of its time on copies within its own memory (turns.h).
 *
 * copies HOW SECONDS REPORT
 *
 * HOW: memcpy (of libc), two (of libc, called from two places), own (a memcpy() in this program), rep (a rep instruction in a
 * separate function), none (no copies). The program also sends datagrams that no process reads. It writes {"copy_ns": ...,
 * "seldom_ns": ..., "other_ns": ...}, CPU time of its thread, to the file REPORT. seldom_ns is the part of copy_ns that is
 * spent in calls from the second place.
 */
#include "turns.h"

#define BLOCK_BYTES (128 << 10)

static char __attribute__((aligned(64))) from[BLOCK_BYTES], to[BLOCK_BYTES];
static volatile size_t block_bytes = BLOCK_BYTES;

static __attribute__((noinline)) void copy_by_libc(void)
{
	memcpy(to, from, block_bytes);
	/* Prevent a tail call: memcpy() would then return to our caller. */
	asm volatile("" : : : "memory");
}

static __attribute__((noinline)) void copy_seldom(void)
{
	memcpy(from, to, block_bytes);
	asm volatile("" : : : "memory");
}

/* This function has a stack frame or not, depending on compiler options. */
static __attribute__((noinline)) void memcpy_own(volatile uint64_t *into, volatile uint64_t *out_of, size_t count)
{
	for (size_t i = 0; i < count; i++)
		into[i] = out_of[i];
}

static __attribute__((noinline)) void copy_by_own(void)
{
	memcpy_own((void *)to, (void *)from, block_bytes / sizeof(uint64_t));
	asm volatile("" : : : "memory");
}

static __attribute__((noinline)) void copy_by_instruction(void)
{
#ifdef __x86_64__
	void *into = to, *out_of = from;
	size_t count = block_bytes;

	asm volatile("rep movsb" : "+D"(into), "+S"(out_of), "+c"(count) : : "memory");
#else
	errx(CANNOT, "rep: not on this processor");
#endif
}

int main(int argc, char **argv)
{
	void (*copy)(void) = calculate, (*seldom)(void) = NULL;

	if (argc != 4)
		errx(2, "usage: copies memcpy|two|own|rep|none SECONDS REPORT");
	if (!strcmp(argv[1], "memcpy") || !strcmp(argv[1], "two"))
		copy = copy_by_libc;
	else if (!strcmp(argv[1], "own"))
		copy = copy_by_own;
	else if (!strcmp(argv[1], "rep"))
		copy = copy_by_instruction;
	if (!strcmp(argv[1], "two"))
		seldom = copy_seldom;
	memset(from, 'c', sizeof(from));
	return take_turns(copy, seldom, argv[2], argv[3]);
}
