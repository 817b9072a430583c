/* SPDX-License-Identifier: GPL-2.0-only */
/* resting_thread.h - a thread that works periodically, sleeps in between, and stops on request. */
#ifndef COPYSCOPE_RESTING_THREAD_H
#define COPYSCOPE_RESTING_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

#include "kernel/clock.h"

/* A zero-initialised thread is not running. */
struct resting_thread {
	bool running;
	bool stop;
	void (*work)(void *argument);
	void *argument;
	pthread_t thread;
	pthread_mutex_t mutex;
	pthread_cond_t stopping;
};

/* Start the thread. Return 0 or -errno. The work holds the mutex except while it sleeps. */
int resting_thread__start(struct resting_thread *thread, void (*work)(void *), void *argument);
/* Called by the work: sleep for `ns`. Return false if the thread must stop. */
bool resting_thread__rest(struct resting_thread *thread, uint64_t ns);
/* Stop the thread and wait for it. A thread that is not running is allowed. */
void resting_thread__stop(struct resting_thread *thread);

#endif
