/* SPDX-License-Identifier: GPL-2.0 */
/*
 * births.h - the threads of a watched program that begin while timers are opened or open: which of them have inherited one.
 *
 * To open the timers of thousands of threads takes a while. A thread that begins meanwhile has inherited a timer where the thread
 * that started it had one already; a second one would count its samples twice, and none would count none of them.
 */
#ifndef COLLECTOR_BIRTHS_H
#define COLLECTOR_BIRTHS_H

#include <stdbool.h>
#include <sys/types.h>

#include <linux/types.h>

#include "report/watched.h"

/* For one thread. Zero bytes, but for the map, are those of nobody. */
struct births {
	struct births_map map;
	/* How many had been noted when the map was emptied last, and how many then had found no place. */
	__u32 seen;
	__u32 lost;
	/* What was taken out of the map last. */
	struct {
		pid_t tid;
		enum birth birth;
	} taken[BIRTHS_MAX];
	size_t count;
};

/* Timers are opened: from here on each birth is noted. Those of before are forgotten, unless timers were open (`kept`). */
void births__begin(struct births *births, bool kept);
/* Every thread that was there has a timer: from here on only births without one are noted. */
void births__opened(struct births *births);
/* No timer is open any more. */
void births__end(struct births *births);
/* Whether this thread has begun meanwhile, and has a timer; whichever, it is noted no longer. */
bool births__inherited(struct births *births, pid_t tid);
/* Takes what is noted out of the map. */
void births__take(struct births *births);
/* How many were not noted since this was asked last, because the map was full. */
unsigned int births__lost(struct births *births);

#endif
