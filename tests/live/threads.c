// SPDX-License-Identifier: GPL-2.0-only
/*
 * threads.c - runs three threads with different names and work, and reports the CPU time of each.
 *
 * threads SECONDS REPORT
 *
 * `calculates` calculates all the time, `copies` copies memory for half of the time and sleeps, `sends` sends datagrams that no
 * process reads. The CPU times are written to the file REPORT: {"calculates": ..., ...}.
 */
#include "turns.h"

#include <pthread.h>
#include <sys/prctl.h>

#define BLOCK_BYTES (128 << 10)
#define LARGE_DATAGRAM_BYTES 32768

struct thread {
	const char *name;
	void (*turn)(void);
	long long cpu_ns;
	pthread_t id;
};

static char from[BLOCK_BYTES], to[BLOCK_BYTES];
static volatile size_t block_bytes = BLOCK_BYTES;
static long long until_ns;
static int sock;

static void copy_block(void)
{
	memcpy(to, from, block_bytes);
	asm volatile("" : : : "memory");
}

static void calculate_a_turn(void)
{
	take_turn(calculate, 1000000);
}

static void copy_a_turn(void)
{
	struct timespec pause = { .tv_nsec = 1000000 };

	take_turn(copy_block, 1000000);
	nanosleep(&pause, NULL);
}

static void send_a_turn(void)
{
	static char datagram[LARGE_DATAGRAM_BYTES];

	for (int i = 0; i < 16; i++)
		if (send(sock, datagram, sizeof(datagram), 0) < 0)
			err(1, "send");
}

static void *run(void *arg)
{
	struct thread *thread = arg;

	prctl(PR_SET_NAME, thread->name);
	while (ns(CLOCK_MONOTONIC) < until_ns)
		thread->turn();
	thread->cpu_ns = ns(CLOCK_THREAD_CPUTIME_ID);
	return NULL;
}

int main(int argc, char **argv)
{
	struct thread threads[] = {
		{ .name = "calculates", .turn = calculate_a_turn },
		{ .name = "copies", .turn = copy_a_turn },
		{ .name = "sends", .turn = send_a_turn },
	};
	FILE *report;
	int count = sizeof(threads) / sizeof(*threads);

	if (argc != 3)
		errx(2, "usage: threads SECONDS REPORT");
	sock = connected_to_nobody();
	until_ns = ns(CLOCK_MONOTONIC) + (long long)(atof(argv[1]) * 1e9);
	for (int i = 0; i < count; i++)
		if (pthread_create(&threads[i].id, NULL, run, &threads[i]))
			errx(1, "pthread_create");
	for (int i = 0; i < count; i++)
		pthread_join(threads[i].id, NULL);
	report = fopen(argv[2], "w");
	if (!report)
		err(1, "%s", argv[2]);
	for (int i = 0; i < count; i++)
		fprintf(report, "%s\"%s\": %lld", i ? ", " : "{", threads[i].name, threads[i].cpu_ns);
	fprintf(report, "}\n");
	return fclose(report) ? 1 : 0;
}
