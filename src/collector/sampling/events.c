// SPDX-License-Identifier: GPL-2.0-only
#include "events.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <bpf/libbpf.h>

int events__add(struct events *events, struct bpf_program *program, int fd)
{
	struct event *event = malloc(sizeof(*event));
	int err;

	if (!event) {
		close(fd);
		return -ENOMEM;
	}
	*event = (struct event){ .link = bpf_program__attach_perf_event(program, fd), .fd = fd, .next = events->first };
	if (!event->link) {
		err = -errno;
		close(fd);
		free(event);
		return err;
	}
	/* Attaching enables the event. */
	ioctl(fd, PERF_EVENT_IOC_DISABLE, 0);
	events->first = event;
	return 0;
}

int events__switch(const struct events *events, unsigned long request)
{
	for (const struct event *event = events->first; event; event = event->next)
		if (ioctl(event->fd, request, 0))
			return -errno;
	return 0;
}

void events__close(struct events *events)
{
	struct event *event;

	while ((event = events->first)) {
		events->first = event->next;
		/* The link owns the descriptor. */
		bpf_link__destroy(event->link);
		free(event);
	}
}
