// SPDX-License-Identifier: GPL-2.0
#include "events.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bpf/libbpf.h>

static int make_room(struct events *events)
{
	int capacity = events->capacity ? 2 * events->capacity : 8;
	void *links, *fds;

	if (events->count < events->capacity)
		return 0;
	links = realloc(events->links, capacity * sizeof(*events->links));
	if (!links)
		return -ENOMEM;
	events->links = links;
	fds = realloc(events->fds, capacity * sizeof(*events->fds));
	if (!fds)
		return -ENOMEM;
	events->fds = fds;
	events->capacity = capacity;
	return 0;
}

int events__add(struct events *events, struct perf_event_attr attr, struct bpf_program *program, pid_t pid, int cpu)
{
	struct bpf_link *link;
	int err = make_room(events);
	int fd;

	if (err)
		return err;
	attr.size = sizeof(attr);
	attr.disabled = 1;
	fd = syscall(SYS_perf_event_open, &attr, pid, cpu, -1, PERF_FLAG_FD_CLOEXEC);
	if (fd < 0)
		return -errno;
	link = bpf_program__attach_perf_event(program, fd);
	if (!link) {
		err = -errno;
		close(fd);
		return err;
	}
	/* Attaching enables. */
	ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);
	events->links[events->count] = link;
	events->fds[events->count++] = fd;
	return 0;
}

int events__switch(const struct events *events, unsigned long request)
{
	for (int i = 0; i < events->count; i++)
		if (ioctl(events->fds[i], request, 0))
			return -errno;
	return 0;
}

int events__read(const struct events *events, uint64_t *sum)
{
	uint64_t value;

	*sum = 0;
	for (int i = 0; i < events->count; i++) {
		ssize_t got = read(events->fds[i], &value, sizeof(value));

		/* A thread that ended leaves its count to be read, and an end of file where it was in error. */
		if (got < 0)
			return -errno;
		if (got == sizeof(value))
			*sum += value;
	}
	return 0;
}

void events__close(struct events *events)
{
	/* The link owns the descriptor. */
	for (int i = 0; i < events->count; i++)
		bpf_link__destroy(events->links[i]);
	free(events->links);
	free(events->fds);
	*events = (struct events){};
}
