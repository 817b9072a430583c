/* SPDX-License-Identifier: GPL-2.0-only */
/* checked.h - shared by test programs: checked(), for calls that must not fail, and a clock. */
#ifndef COPYSCOPE_TESTS_CHECKED_H
#define COPYSCOPE_TESTS_CHECKED_H

#include <err.h>
#include <time.h>

static inline long long checked(long long done, const char *what)
{
	if (done < 0)
		err(1, "%s", what);
	return done;
}

static inline double now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

#endif
