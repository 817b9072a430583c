/* SPDX-License-Identifier: GPL-2.0 */
/* events.h - a set of perf events with one BPF program behind them, switched together. */
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

/* Opens one event of whatever runs on the CPU, attaches the program and leaves it disabled. Returns 0 or -errno. */
int events__add(struct events *events, struct perf_event_attr attr, struct bpf_program *program, int cpu);
/* PERF_EVENT_IOC_ENABLE or PERF_EVENT_IOC_DISABLE, on all. */
int events__switch(const struct events *events, unsigned long request);
void events__close(struct events *events);

#endif
