// SPDX-License-Identifier: GPL-2.0
#include "events.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bpf/libbpf.h>

/* Chunk N has room for EVENTS_FIRST << N events. */
static int chunk_of(int i)
{
	return 31 - __builtin_clz(i / EVENTS_FIRST + 1);
}

static struct event *event_at(const struct events *events, int i)
{
	int chunk = chunk_of(i);

	return events->chunks[chunk] + (i - EVENTS_FIRST * ((1 << chunk) - 1));
}

int events__put(struct events *events, struct bpf_link *link, int fd)
{
	int count = events->count, chunk = chunk_of(count);

	if (chunk == EVENTS_CHUNKS)
		return -ENOMEM;
	if (!events->chunks[chunk])
		events->chunks[chunk] = calloc(EVENTS_FIRST << chunk, sizeof(struct event));
	if (!events->chunks[chunk])
		return -ENOMEM;
	*event_at(events, count) = (struct event){ .link = link, .fd = fd };
	events->count = count + 1;
	return 0;
}

int events__add(struct events *events, struct perf_event_attr attr, struct bpf_program *program, pid_t pid, int cpu)
{
	struct bpf_link *link;
	int fd, err;

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
	err = events__put(events, link, fd);
	if (err)
		bpf_link__destroy(link);
	return err;
}

int events__switch(const struct events *events, unsigned long request)
{
	for (int i = 0, count = events->count; i < count; i++)
		if (ioctl(event_at(events, i)->fd, request, 0))
			return -errno;
	return 0;
}

int events__read(const struct events *events, uint64_t *sum)
{
	uint64_t value;

	*sum = 0;
	for (int i = 0, count = events->count; i < count; i++) {
		ssize_t got = read(event_at(events, i)->fd, &value, sizeof(value));

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
		bpf_link__destroy(event_at(events, i)->link);
	for (int chunk = 0; chunk < EVENTS_CHUNKS; chunk++)
		free(events->chunks[chunk]);
	memset(events, 0, sizeof(*events));
}
