// SPDX-License-Identifier: GPL-2.0
/*
 * copies.c - copies in its own memory for half of its time, and says for how long: the truth that a ledger is compared with.
 *
 * copies HOW SECONDS REPORT
 *
 * HOW: memcpy (libc's), two (libc's, called from two places), own (a memcpy() of its own), rep (an instruction in a function of
 * its own), none (it calculates all the time). It sends a datagram now and then, which nobody reads. Writes {"copy_ns": ...,
 * "seldom_ns": ..., "other_ns": ...}, CPU time of its thread, to the file REPORT: seldom_ns is that part of copy_ns that is
 * copied from the second place.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define BLOCK_BYTES (128 << 10)
#define TURN_NS_MOST 1000000
#define DATAGRAM_BYTES 1200

static char __attribute__((aligned(64))) from[BLOCK_BYTES], to[BLOCK_BYTES];
static volatile size_t block_bytes = BLOCK_BYTES;
static volatile uint64_t sum;

static long long ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static __attribute__((noinline)) void copy_by_libc(void)
{
	memcpy(to, from, block_bytes);
	/* Else the compiler jumps to memcpy(), which goes back to our caller. */
	asm volatile("" : : : "memory");
}

static __attribute__((noinline)) void copy_seldom(void)
{
	memcpy(from, to, block_bytes);
	asm volatile("" : : : "memory");
}

/* With or without a frame on the stack, as the compiler is told. */
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
	errx(77, "rep: not on this processor");
#endif
}

static void calculate(void)
{
	uint64_t x = sum + 1;

	for (int i = 0; i < 5000; i++)
		x = x * 6364136223846793005ULL + 1442695040888963407ULL;
	sum = x;
}

/* Until a turn is over; returns the CPU time that it took. Turns of one length would keep step with whoever samples them. */
static long long take_turn(void (*work)(void), long long turn_ns)
{
	long long began = ns(CLOCK_THREAD_CPUTIME_ID), now;

	do {
		/* Seldom: the clock is a system call, and what that takes is neither copying nor calculating. */
		for (int i = 0; i < 16; i++)
			work();
		now = ns(CLOCK_THREAD_CPUTIME_ID);
	} while (now - began < turn_ns);
	return now - began;
}

int main(int argc, char **argv)
{
	struct sockaddr_in there = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	long long until, copy_ns = 0, seldom_ns = 0, other_ns = 0;
	socklen_t length = sizeof(there);
	void (*copy)(void) = calculate, (*seldom)(void) = NULL;
	int sink, sock;
	FILE *report;

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
	sink = socket(AF_INET, SOCK_DGRAM, 0);
	sock = socket(AF_INET, SOCK_DGRAM, 0);
	if (sink < 0 || sock < 0 || bind(sink, (void *)&there, length) || getsockname(sink, (void *)&there, &length) ||
	    connect(sock, (void *)&there, length))
		err(1, "socket");
	until = ns(CLOCK_MONOTONIC) + (long long)(atof(argv[2]) * 1e9);
	while (ns(CLOCK_MONOTONIC) < until) {
		long long turn_ns = random() % TURN_NS_MOST;

		copy_ns += take_turn(copy, turn_ns);
		if (seldom)
			seldom_ns += take_turn(seldom, turn_ns / 3);
		other_ns += take_turn(calculate, turn_ns);
		if (send(sock, from, DATAGRAM_BYTES, 0) < 0)
			err(1, "send");
	}
	if (copy == calculate) {
		other_ns += copy_ns;
		copy_ns = 0;
	}
	copy_ns += seldom_ns;
	report = fopen(argv[3], "w");
	if (!report)
		err(1, "%s", argv[3]);
	fprintf(report, "{\"copy_ns\": %lld, \"seldom_ns\": %lld, \"other_ns\": %lld}\n", copy_ns, seldom_ns, other_ns);
	return fclose(report) ? 1 : 0;
}
