/* SPDX-License-Identifier: GPL-2.0-only */
/* events.h - a set of perf events with one BPF program, enabled and disabled together. */
#ifndef COLLECTOR_EVENTS_H
#define COLLECTOR_EVENTS_H

#include <linux/perf_event.h>
#include <sys/types.h>

struct bpf_link;
struct bpf_program;

struct event {
	struct bpf_link *link;
	int fd;
	struct event *next;
};

struct events {
	struct event *first;
};

/* Take ownership of an event's descriptor and attach the program. The event stays disabled. Return 0 or -errno. */
int events__add(struct events *events, struct bpf_program *program, int fd);
/* Enable or disable all events: `request` is PERF_EVENT_IOC_ENABLE or PERF_EVENT_IOC_DISABLE. */
int events__switch(const struct events *events, unsigned long request);
void events__close(struct events *events);

#endif
