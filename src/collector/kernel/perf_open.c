// SPDX-License-Identifier: GPL-2.0-only
#include "perf_open.h"

#include <errno.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

int perf_open(struct perf_event_attr *attr, pid_t task, int cpu)
{
	int fd = syscall(SYS_perf_event_open, attr, task, cpu, -1, PERF_FLAG_FD_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

int perf_open_thread(struct perf_event_attr *attr, int group)
{
	int fd = syscall(SYS_perf_event_open, attr, 0, -1, group, PERF_FLAG_FD_CLOEXEC);

	return fd < 0 ? -errno : fd;
}

double perf_tsc_cycle_ns(int fd)
{
	const long size = sysconf(_SC_PAGESIZE);
	struct perf_event_mmap_page *page = mmap(NULL, size, PROT_READ, MAP_SHARED, fd, 0);
	double ns = 0;

	if (page == MAP_FAILED)
		return 0;
	if (page->cap_user_time)
		ns = (double)page->time_mult / (1ULL << page->time_shift);
	munmap(page, size);
	return ns;
}
