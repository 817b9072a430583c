/* SPDX-License-Identifier: GPL-2.0-only */
/* checked.h - shared by test programs: calls that must not fail, a clock, and the ways of a program. */
#ifndef COPYSCOPE_TESTS_CHECKED_H
#define COPYSCOPE_TESTS_CHECKED_H

#include <err.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* A way of moving bytes, by the name on the command line. */
struct way {
	const char *name;
	void (*all)(void);
};

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

static inline const struct way *find_way(const struct way *ways, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (!strcmp(ways[i].name, name))
			return &ways[i];
	errx(2, "%s: no such way", name);
}

static inline void *map_memory(size_t bytes)
{
	void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);

	if (memory == MAP_FAILED)
		err(1, "mmap");
	return memory;
}

static inline FILE *open_report(const char *path)
{
	FILE *report = fopen(path, "w");

	if (!report)
		err(1, "%s", path);
	return report;
}

#endif
