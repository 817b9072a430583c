/* SPDX-License-Identifier: GPL-2.0 */
/* events.h - a set of perf events with one BPF program behind them, switched together. */
#ifndef COLLECTOR_EVENTS_H
#define COLLECTOR_EVENTS_H

#include <linux/perf_event.h>
#include <stdint.h>
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
	int count;
};

/*
 * Opens one event (pid -1: whatever runs on the cpu; cpu -1: the task wherever it runs), attaches the program and
 * leaves it disabled. Returns 0 or -errno.
 */
int events__add(struct events *events, struct perf_event_attr attr, struct bpf_program *program, pid_t pid, int cpu);
/* PERF_EVENT_IOC_ENABLE or PERF_EVENT_IOC_DISABLE, on all. */
int events__switch(const struct events *events, unsigned long request);
/* What all of them counted so far, with the children that inherited them; 0 or -errno. */
int events__read(const struct events *events, uint64_t *sum);
void events__close(struct events *events);

#endif
