// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdint.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "gate.h"

int gate__init(struct gate *gate, unsigned int threads)
{
	atomic_init(&gate->state, GATE_CLOSED);
	gate->threads = threads;
	gate->parked = 0;
	gate->retired = 0;
	pthread_mutex_init(&gate->lock, NULL);
	pthread_cond_init(&gate->changed, NULL);
	gate->event_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	return gate->event_fd < 0 ? -errno : 0;
}

void gate__destroy(struct gate *gate)
{
	if (gate->event_fd >= 0)
		close(gate->event_fd);
	pthread_cond_destroy(&gate->changed);
	pthread_mutex_destroy(&gate->lock);
}

void gate__notify(struct gate *gate)
{
	/* This write fails only if the unread counter of the eventfd overflows 64 bits. */
	eventfd_write(gate->event_fd, 1);
}

bool gate__park(struct gate *gate, bool retire)
{
	enum gate_state state;

	pthread_mutex_lock(&gate->lock);
	gate->parked++;
	gate->retired += retire;
	if (retire || gate->parked == gate->threads)
		gate__notify(gate);
	for (;;) {
		state = atomic_load_explicit(&gate->state, memory_order_relaxed);
		if (state == GATE_DISMISSED || (state == GATE_OPEN && !retire))
			break;
		pthread_cond_wait(&gate->changed, &gate->lock);
	}
	gate->parked--;
	pthread_mutex_unlock(&gate->lock);
	return state == GATE_OPEN;
}

void gate__set(struct gate *gate, enum gate_state state)
{
	pthread_mutex_lock(&gate->lock);
	atomic_store_explicit(&gate->state, state, memory_order_relaxed);
	pthread_cond_broadcast(&gate->changed);
	/* If all threads parked before the gate was closed, no thread signals the event, so signal it here. */
	if (state == GATE_CLOSED && gate->parked == gate->threads)
		gate__notify(gate);
	pthread_mutex_unlock(&gate->lock);
}

bool gate__all_parked(struct gate *gate)
{
	bool all;

	pthread_mutex_lock(&gate->lock);
	all = gate->parked == gate->threads;
	pthread_mutex_unlock(&gate->lock);
	return all;
}

bool gate__all_retired(struct gate *gate)
{
	bool all;

	pthread_mutex_lock(&gate->lock);
	all = gate->retired == gate->threads;
	pthread_mutex_unlock(&gate->lock);
	return all;
}

void gate__acknowledge(struct gate *gate)
{
	eventfd_t events;

	eventfd_read(gate->event_fd, &events);
}
