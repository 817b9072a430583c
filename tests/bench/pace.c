// SPDX-License-Identifier: GPL-2.0
/*
 * pace.c - how fast is a CPU just now? For make bench BENCH=watch.
 *
 *	pace CPU SECONDS     one line of JSON: getppid_ns
 *
 * The other tenant of a core, the host's other work and its clock change by a tenth from second to second how long the same
 * instructions take. This looks every 2 ms how long a system call takes that nothing here has a hook at: median of 50 ms,
 * which leaves out what was interrupted, and of these the geometric mean, less the tenth at either end: while somebody
 * traces system calls all of them take their slow way, and that is not the machine's pace.
 */
#define _GNU_SOURCE
#include <math.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define REST_NS 2000000
#define CALLS 20
#define LOOKS 25
#define LEFT_OUT 10 /* one in so many at either end */

static double now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1e9 + now.tv_nsec;
}

static int by_value(const void *left, const void *right)
{
	double a = *(const double *)left, b = *(const double *)right;

	return (a > b) - (a < b);
}

static double look(void)
{
	double began_ns = now_ns();

	for (int i = 0; i < CALLS; i++)
		getppid();
	return (now_ns() - began_ns) / CALLS;
}

static double median_of_looks(void)
{
	const struct timespec rest = { .tv_nsec = REST_NS };
	double taken[LOOKS];

	for (int i = 0; i < LOOKS; i++) {
		nanosleep(&rest, NULL);
		look(); /* warms the caches up */
		taken[i] = look();
	}
	qsort(taken, LOOKS, sizeof(*taken), by_value);
	return taken[LOOKS / 2];
}

int main(int argc, char **argv)
{
	size_t room, count = 0, left_out;
	double until_ns, logs = 0, *taken;
	cpu_set_t cpus;

	if (argc != 3) {
		fprintf(stderr, "usage: pace CPU SECONDS\n");
		return 2;
	}
	CPU_ZERO(&cpus);
	CPU_SET(atoi(argv[1]), &cpus);
	if (sched_setaffinity(0, sizeof(cpus), &cpus)) {
		perror("sched_setaffinity");
		return 1;
	}
	/* Each takes at least its rests. */
	room = atof(argv[2]) * 1e9 / ((double)LOOKS * REST_NS) + 1;
	taken = calloc(room, sizeof(*taken));
	if (!taken) {
		perror("calloc");
		return 1;
	}
	until_ns = now_ns() + atof(argv[2]) * 1e9;
	do {
		taken[count++] = median_of_looks();
	} while (count < room && now_ns() < until_ns);
	qsort(taken, count, sizeof(*taken), by_value);
	left_out = count / LEFT_OUT;
	for (size_t i = left_out; i < count - left_out; i++)
		logs += log(taken[i]);
	printf("{\"getppid_ns\": %.3f}\n", exp(logs / (count - 2 * left_out)));
	free(taken);
	return 0;
}
