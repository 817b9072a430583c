/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * turns.h - spends half of the time on some work, calculates in the other half, and reports the times, to check a ledger.
 *
 * The program also sends datagrams that no process reads. It writes CPU times of its thread as JSON to a file: copy_ns, seldom_ns
 * (the part of copy_ns spent on the second kind of work, a third as long as the first), other_ns.
 */
#ifndef COPYSCOPE_TESTS_TURNS_H
#define COPYSCOPE_TESTS_TURNS_H

#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define TURN_NS_MOST 1000000
#define DATAGRAM_BYTES 1200
/* Exit status if this machine does not support the requested work. */
#define CANNOT 77

static volatile uint64_t sum;

static long long ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static void calculate(void)
{
	uint64_t x = sum + 1;

	for (int i = 0; i < 5000; i++)
		x = x * 6364136223846793005ULL + 1442695040888963407ULL;
	sum = x;
}

/* Work for a turn, and return its CPU time. Turns vary in length, because equal ones could coincide with a sampling period. */
static long long take_turn(void (*work)(void), long long turn_ns)
{
	long long began = ns(CLOCK_THREAD_CPUTIME_ID), now;

	do {
		/* Read the clock rarely: that is a system call, and its time counts neither as copying nor as calculating. */
		for (int i = 0; i < 16; i++)
			work();
		now = ns(CLOCK_THREAD_CPUTIME_ID);
	} while (now - began < turn_ns);
	return now - began;
}

/* Return a socket whose datagrams are never read. */
static inline int connected_to_nobody(void)
{
	struct sockaddr_in there = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int sink = socket(AF_INET, SOCK_DGRAM, 0), sock = socket(AF_INET, SOCK_DGRAM, 0);
	socklen_t length = sizeof(there);

	if (sink < 0 || sock < 0 || bind(sink, (void *)&there, length) || getsockname(sink, (void *)&there, &length) ||
	    connect(sock, (void *)&there, length))
		err(1, "socket");
	return sock;
}

static inline int take_turns(void (*work)(void), void (*seldom)(void), const char *seconds, const char *report_name)
{
	static const char datagram[DATAGRAM_BYTES];
	long long until, copy_ns = 0, seldom_ns = 0, other_ns = 0;
	int sock = connected_to_nobody();
	FILE *report;

	until = ns(CLOCK_MONOTONIC) + (long long)(atof(seconds) * 1e9);
	while (ns(CLOCK_MONOTONIC) < until) {
		long long turn_ns = random() % TURN_NS_MOST;

		copy_ns += take_turn(work, turn_ns);
		if (seldom)
			seldom_ns += take_turn(seldom, turn_ns / 3);
		other_ns += take_turn(calculate, turn_ns);
		if (send(sock, datagram, sizeof(datagram), 0) < 0)
			err(1, "send");
	}
	if (work == calculate) {
		other_ns += copy_ns;
		copy_ns = 0;
	}
	copy_ns += seldom_ns;
	report = fopen(report_name, "w");
	if (!report)
		err(1, "%s", report_name);
	fprintf(report, "{\"copy_ns\": %lld, \"seldom_ns\": %lld, \"other_ns\": %lld}\n", copy_ns, seldom_ns, other_ns);
	return fclose(report) ? 1 : 0;
}

#endif
