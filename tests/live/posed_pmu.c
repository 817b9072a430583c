// SPDX-License-Identifier: GPL-2.0-only
/*
 * Simulates a PMU in perf_event_open(2) of the collector (LD_PRELOAD). POSED=all: all CPUs have its events; first: only CPU 0;
 * dead: all CPUs, but the events never interrupt. Each event is really the cpu-clock timer or the dummy event.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <linux/perf_event.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>

long syscall(long number, ...)
{
	long (*next)(long, ...) = (long (*)(long, ...))dlsym(RTLD_NEXT, "syscall");
	const char *posed = getenv("POSED") ?: "";
	struct perf_event_attr attr;
	long words[6];
	va_list list;

	va_start(list, number);
	for (int i = 0; i < 6; i++)
		words[i] = va_arg(list, long);
	va_end(list);
	if (number == SYS_perf_event_open) {
		memcpy(&attr, (void *)words[0], sizeof(attr));
		if (attr.type == PERF_TYPE_HARDWARE || attr.type == PERF_TYPE_HW_CACHE || attr.type == PERF_TYPE_RAW) {
			if (!strcmp(posed, "first") && words[2] != 0) {
				errno = ENOENT;
				return -1;
			}
			attr.type = PERF_TYPE_SOFTWARE;
			attr.config = strcmp(posed, "dead") ? PERF_COUNT_SW_CPU_CLOCK : PERF_COUNT_SW_DUMMY;
			words[0] = (long)&attr;
		}
	}
	return next(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}
