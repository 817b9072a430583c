/* SPDX-License-Identifier: GPL-2.0 */
/* resting_thread.h - a thread that works now and then, rests in between, and ends when it is told. */
#ifndef COPYSCOPE_RESTING_THREAD_H
#define COPYSCOPE_RESTING_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernel/clock.h"

/* Zero bytes are one that does not run. */
struct resting_thread {
	bool running;
	bool stop;
	void (*work)(void *argument);
	void *argument;
	pthread_t thread;
	pthread_mutex_t mutex;
	pthread_cond_t stopping;
};

/* 0 or a negative errno. The work holds the mutex, except while it rests. */
int resting_thread__start(struct resting_thread *thread, void (*work)(void *), void *argument);
/* Of the work: sleeps for so long; false when told to stop. */
bool resting_thread__rest(struct resting_thread *thread, uint64_t ns);
/* Waits for the end of the work. One that does not run is fine. */
void resting_thread__stop(struct resting_thread *thread);

#endif
