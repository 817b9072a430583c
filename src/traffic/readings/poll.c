// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "marker.h"
#include "receiver_thread.h"

/*
 * One thread reads all connections, as servers with an event loop do: poll() says which have data, and each of
 * these is read until a buffer is full or nothing is left. It sleeps only when none has data:
 * until one has, or (--coalesce) for a time, as a device does that coalesces its interrupts.
 */
struct loop {
	struct receiver_thread *connections;
	unsigned int count;
	unsigned int open;
	struct timespec coalesce;	/* between two looks when nothing is there; 0: sleep until something is */
	struct destination to;
	struct pollfd ready[];
};

static void finish(struct loop *loop, unsigned int index, int err)
{
	loop->ready[index].fd = -1;
	loop->open--;
	receiver_thread__finish(&loop->connections[index], err);
}

/* One buffer at most, so that no connection keeps the others waiting. */
static void read_ready(struct loop *loop, unsigned int index)
{
	struct receiver_thread *connection = &loop->connections[index];
	size_t size = connection->options->buffer_bytes;
	size_t filled = 0;

	while (filled < size) {
		char *place = loop->to.buffer + filled;
		ssize_t got = recv(connection->fd, place, size - filled, MSG_DONTWAIT);
		const struct arrival arrival = { .from = place, .bytes = got };
		int err = 0;

		if (got < 0 && errno == EAGAIN)
			return;
		if (got < 0 && errno == EINTR)
			continue;
		if (got < 0 && !receiver_thread__is_stopping(connection))
			err = failure__set(&connection->failure, -errno, "recv: connection %u: %s", index,
					   strerror(errno));
		else if (got > 0)
			err = receiver_thread__account(connection, &arrival);
		if (got <= 0 || err) {
			finish(loop, index, err);
			return;
		}
		filled += got;
	}
}

static int prepare(struct loop *loop)
{
	struct receiver_thread *first = loop->connections;
	int err = placement__pin_thread(&first->options->placement, 0, &first->failure);

	return err ? err : destination__open(&loop->to, first->options, &first->failure);
}

/*
 * Whoever sleeps in poll() has to be woken: by the sender, on its time, for a packet. A timer wakes on our own, and
 * finds all that has come by then. An interruption means looking too early, once.
 */
static void wait_for_data(struct loop *loop)
{
	if (!loop->coalesce.tv_nsec) {
		poll(loop->ready, loop->count, -1);
		return;
	}
	while (!poll(loop->ready, loop->count, 0))
		nanosleep(&loop->coalesce, NULL);
}

static void *run_loop(void *argument)
{
	struct loop *loop = argument;
	int err = prepare(loop);

	for (unsigned int i = 0; i < loop->count; i++) {
		loop->ready[i] = (struct pollfd){ .fd = loop->connections[i].fd, .events = POLLIN };
		if (err)
			finish(loop, i, err);
	}
	while (loop->open) {
		marker__execute(MARKER_RECEIVER);
		/* EINTR leaves `ready` as it was: reading once too often finds nothing. */
		wait_for_data(loop);
		for (unsigned int i = 0; i < loop->count; i++)
			if (loop->ready[i].fd >= 0 && loop->ready[i].revents)
				read_ready(loop, i);
	}
	/* The thread's time is that of all: it stands on the first, and nobody knows the others'. */
	loop->connections[0].summary.cpu_ns = (int64_t)clock__read_ns(CLOCK_THREAD_CPUTIME_ID);
	for (unsigned int i = 1; i < loop->count; i++)
		loop->connections[i].summary.cpu_ns = -1;
	destination__close(&loop->to);
	free(loop);
	return NULL;
}

static int start_polling(struct receiver_thread *connections, unsigned int count)
{
	struct loop *loop = calloc(1, sizeof(*loop) + count * sizeof(*loop->ready));
	int err;

	if (!loop)
		return -ENOMEM;
	loop->connections = connections;
	loop->count = loop->open = count;
	loop->coalesce.tv_nsec = connections->options->coalesce_us * 1000;
	err = -pthread_create(&connections->thread, NULL, run_loop, loop);
	connections->has_thread = !err;
	if (err)
		free(loop);
	return err;
}

const struct reading reading_poll = { .name = "poll", .call = "recv", .by_timer = true, .start = start_polling };
