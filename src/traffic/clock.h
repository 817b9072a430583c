/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TRAFFIC_CLOCK_H
#define TRAFFIC_CLOCK_H

#include <stdint.h>
#include <time.h>

#define NSEC_PER_SEC 1000000000ull
#define NSEC_PER_MSEC 1000000ull

static inline uint64_t clock__read_ns(clockid_t clock)
{
	struct timespec now;

	clock_gettime(clock, &now);
	return (uint64_t)now.tv_sec * NSEC_PER_SEC + (uint64_t)now.tv_nsec;
}

/*
 * Return the current time for a time stamp in an event. Sender and receiver use this clock, so that their time stamps
 * are comparable.
 */
static inline uint64_t clock__now_ns(void)
{
	return clock__read_ns(CLOCK_MONOTONIC);
}

#endif
