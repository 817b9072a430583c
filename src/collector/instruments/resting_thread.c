// SPDX-License-Identifier: GPL-2.0-only
#include "resting_thread.h"

#include <errno.h>

static void *run(void *argument)
{
	struct resting_thread *thread = argument;

	pthread_mutex_lock(&thread->mutex);
	thread->work(thread->argument);
	pthread_mutex_unlock(&thread->mutex);
	return NULL;
}

int resting_thread__start(struct resting_thread *thread, void (*work)(void *), void *argument)
{
	pthread_condattr_t attr;
	int err;

	*thread = (struct resting_thread){ .work = work, .argument = argument };
	pthread_mutex_init(&thread->mutex, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&thread->stopping, &attr);
	pthread_condattr_destroy(&attr);
	err = -pthread_create(&thread->thread, NULL, run, thread);
	thread->running = !err;
	if (err) {
		pthread_cond_destroy(&thread->stopping);
		pthread_mutex_destroy(&thread->mutex);
	}
	return err;
}

bool resting_thread__rest(struct resting_thread *thread, uint64_t ns)
{
	uint64_t until_ns = now_ns() + ns;
	struct timespec until = { until_ns / NSEC_PER_SEC, until_ns % NSEC_PER_SEC };

	while (!thread->stop)
		if (pthread_cond_timedwait(&thread->stopping, &thread->mutex, &until) == ETIMEDOUT)
			return true;
	return false;
}

void resting_thread__stop(struct resting_thread *thread)
{
	if (!thread->running)
		return;
	pthread_mutex_lock(&thread->mutex);
	thread->stop = true;
	pthread_cond_signal(&thread->stopping);
	pthread_mutex_unlock(&thread->mutex);
	pthread_join(thread->thread, NULL);
	pthread_cond_destroy(&thread->stopping);
	pthread_mutex_destroy(&thread->mutex);
	thread->running = false;
}
