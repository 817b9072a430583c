// SPDX-License-Identifier: GPL-2.0-only
/*
 * Reads memory line by line, 16 lines per KiB, and prints the counts of its own perf events as JSON.
 *
 * reads count KIB TIMES: {"kib": ..., "EVENT": count, ...}
 * reads sample KIB PERIOD: {"EVENT": [samples in a function, samples in one that reads three times as much], ...}
 */
#include <linux/perf_event.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define LINE_BYTES 64
#define PAGE_BYTES 4096
#define RING_PAGES 1024

/* config: the cache, and PERF_COUNT_HW_CACHE_RESULT_MISS << 16. */
static const struct { const char *name; uint64_t config; } events[] = {
	{ "L1-dcache-load-misses", 0x10000 }, { "LLC-load-misses", 0x10002 },
};
#define EVENTS (sizeof(events) / sizeof(*events))

/* Each function has its own section, because the linker defines symbols for the start and end of a section. */
__attribute__((noinline, section("once"))) static void read_once(volatile char *memory, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += LINE_BYTES)
		memory[at];
}

__attribute__((noinline, section("thrice"))) static void read_thrice(volatile char *memory, size_t bytes)
{
	for (int i = 0; i < 3; i++)
		for (size_t at = 0; at < bytes; at += LINE_BYTES)
			memory[at];
}

extern char __start_once[], __stop_once[], __start_thrice[], __stop_thrice[];

static int open_event(size_t i, uint64_t period)
{
	struct perf_event_attr attr = {
		.size = sizeof(attr), .type = PERF_TYPE_HW_CACHE, .config = events[i].config, .sample_period = period,
		.sample_type = PERF_SAMPLE_IP, .disabled = 1,
	};
	int fd = syscall(SYS_perf_event_open, &attr, 0, -1, -1, 0);

	if (fd < 0) {
		perror(events[i].name);
		exit(1);
	}
	return fd;
}

static void count(const int fds[EVENTS], volatile char *memory, size_t bytes, int times)
{
	uint64_t values[EVENTS];

	for (size_t i = 0; i < EVENTS; i++)
		ioctl(fds[i], PERF_EVENT_IOC_ENABLE, 0);
	for (int i = 0; i < times; i++)
		read_once(memory, bytes);
	for (size_t i = 0; i < EVENTS; i++)
		ioctl(fds[i], PERF_EVENT_IOC_DISABLE, 0);
	printf("{\"kib\": %zu", (bytes >> 10) * times);
	for (size_t i = 0; i < EVENTS; i++) {
		if (read(fds[i], &values[i], sizeof(values[i])) != sizeof(values[i]))
			exit(1);
		printf(", \"%s\": %llu", events[i].name, (unsigned long long)values[i]);
	}
	printf("}\n");
}

static void tell_samples(const char *name, const struct perf_event_mmap_page *ring)
{
	const char *data = (const char *)ring + ring->data_offset;
	unsigned int once = 0, thrice = 0;

	for (uint64_t at = ring->data_tail; at < ring->data_head;) {
		const struct perf_event_header *header = (const void *)(data + at % ring->data_size);
		uintptr_t ip = *(const uint64_t *)(header + 1);

		if (header->type == PERF_RECORD_SAMPLE) {
			once += ip >= (uintptr_t)__start_once && ip < (uintptr_t)__stop_once;
			thrice += ip >= (uintptr_t)__start_thrice && ip < (uintptr_t)__stop_thrice;
		}
		at += header->size;
	}
	printf("\"%s\": [%u, %u]", name, once, thrice);
}

static void sample(const int fds[EVENTS], volatile char *memory, size_t bytes)
{
	struct perf_event_mmap_page *rings[EVENTS];

	for (size_t i = 0; i < EVENTS; i++) {
		rings[i] = mmap(NULL, (1 + RING_PAGES) * PAGE_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, fds[i], 0);
		if (rings[i] == MAP_FAILED) {
			perror("mmap");
			exit(1);
		}
	}
	for (size_t i = 0; i < EVENTS; i++)
		ioctl(fds[i], PERF_EVENT_IOC_ENABLE, 0);
	read_once(memory, bytes);
	read_thrice(memory, bytes);
	for (size_t i = 0; i < EVENTS; i++)
		ioctl(fds[i], PERF_EVENT_IOC_DISABLE, 0);
	for (size_t i = 0; i < EVENTS; i++) {
		printf(i ? ", " : "{");
		tell_samples(events[i].name, rings[i]);
	}
	printf("}\n");
}

int main(int argc, char **argv)
{
	const int samples = argc == 4 && !strcmp(argv[1], "sample");
	const size_t bytes = argc == 4 ? strtoul(argv[2], NULL, 10) << 10 : 0;
	const int number = argc == 4 ? atoi(argv[3]) : 0;
	volatile char *memory = aligned_alloc(PAGE_BYTES, bytes);
	int fds[EVENTS];

	if (!bytes || !memory)
		return 2;
	memset((void *)memory, 1, bytes);
	for (size_t i = 0; i < EVENTS; i++)
		fds[i] = open_event(i, samples ? number : 0);
	if (samples)
		sample(fds, memory, bytes);
	else
		count(fds, memory, bytes, number);
	return 0;
}
