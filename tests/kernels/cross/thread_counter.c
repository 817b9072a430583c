// SPDX-License-Identifier: GPL-2.0-only
/*
 * thread_counter PID - counts events of the sending threads of a process in kernel mode, as
 * `perf stat -e cycles:k` would. The events are listed below.
 *
 * The main thread of the traffic program is excluded, because it handles commands and reports and moves no data.
 * The counts verify the counters per copy, and are measured without BPF. Commands are lines on stdin: `on`, `off`. At the end
 * of stdin the program prints one JSON object and exits. The emulated PMU accepts the raw events but never
 * counts: the test expects 0 for them here, and "unsupported" from the collector.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <linux/perf_event.h>

#define THREADS_MAX 16
#define LOAD_MISS(cache) ((cache) | PERF_COUNT_HW_CACHE_OP_READ << 8 | PERF_COUNT_HW_CACHE_RESULT_MISS << 16)

static const struct {
	const char *name;
	__u32 type;
	__u64 config;
} events[] = {
	{ "cycles", PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES },
	{ "instructions", PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS },
	/* L1D_CACHE_REFILL and LL_CACHE_MISS_RD (Arm ARM, D13.12.3) */
	{ "raw_0x03", PERF_TYPE_RAW, 0x03 },
	{ "raw_0x37", PERF_TYPE_RAW, 0x37 },
	{ "LLC-load-misses", PERF_TYPE_HW_CACHE, LOAD_MISS(PERF_COUNT_HW_CACHE_LL) },
};

#define EVENTS_CNT (sizeof(events) / sizeof(*events))

static int fds[THREADS_MAX][EVENTS_CNT];
static int errors[EVENTS_CNT];
static int threads;

static int open_event(int event, int tid)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr),
		.type = events[event].type,
		.config = events[event].config,
		.disabled = 1,
		.exclude_user = 1,
	};

	return syscall(SYS_perf_event_open, &attr, tid, -1, -1, PERF_FLAG_FD_CLOEXEC);
}

static int open_threads(const char *pid, int main_tid)
{
	struct dirent *entry;
	char path[64];
	DIR *tasks;

	snprintf(path, sizeof(path), "/proc/%s/task", pid);
	tasks = opendir(path);
	if (!tasks)
		return -errno;
	while ((entry = readdir(tasks)) && threads < THREADS_MAX) {
		int tid = atoi(entry->d_name);

		if (tid <= 0 || tid == main_tid)
			continue;
		for (unsigned int event = 0; event < EVENTS_CNT; event++) {
			fds[threads][event] = open_event(event, tid);
			if (fds[threads][event] < 0)
				errors[event] = errno;
		}
		threads++;
	}
	closedir(tasks);
	return 0;
}

static void switch_all(unsigned long request)
{
	for (int thread = 0; thread < threads; thread++)
		for (unsigned int event = 0; event < EVENTS_CNT; event++)
			if (fds[thread][event] >= 0)
				ioctl(fds[thread][event], request, 0);
}

static void print_all(void)
{
	printf("{\"threads\": %d", threads);
	for (unsigned int event = 0; event < EVENTS_CNT; event++) {
		__u64 sum = 0, value;

		if (errors[event]) {
			printf(", \"%s\": null", events[event].name);
			continue;
		}
		for (int thread = 0; thread < threads; thread++)
			if (read(fds[thread][event], &value, sizeof(value)) == sizeof(value))
				sum += value;
		printf(", \"%s\": %llu", events[event].name, (unsigned long long)sum);
	}
	printf("}\n");
}

int main(int argc, char **argv)
{
	char line[16];
	int err;

	if (argc != 2) {
		fprintf(stderr, "usage: thread_counter PID\n");
		return 2;
	}
	err = open_threads(argv[1], atoi(argv[1]));
	if (err) {
		fprintf(stderr, "thread_counter: %s: %s\n", argv[1], strerror(-err));
		return 1;
	}
	while (fgets(line, sizeof(line), stdin))
		switch_all(strcmp(line, "on\n") ? PERF_EVENT_IOC_DISABLE : PERF_EVENT_IOC_ENABLE);
	print_all();
	return 0;
}
