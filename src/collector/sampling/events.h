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

/* Takes the descriptor of an event, attaches the program and leaves it disabled. Returns 0 or -errno. */
int events__add(struct events *events, struct bpf_program *program, int fd);
/* PERF_EVENT_IOC_ENABLE or PERF_EVENT_IOC_DISABLE, on all. */
int events__switch(const struct events *events, unsigned long request);
void events__close(struct events *events);

#endif
