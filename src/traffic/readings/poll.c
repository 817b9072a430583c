// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"
#include "marker.h"
#include "receiver_thread.h"

/*
 * One thread reads all connections, as servers with an event loop do. poll() reports the connections with data. Each of these
 * is read until a buffer is full or no data are left. If no connection has data, the thread sleeps until data arrive, or
 * with --coalesce for a fixed time, as a network card does that coalesces its interrupts.
 */
struct loop {
	struct receiver_thread *connections;
	unsigned int count;
	unsigned int open;		/* connections that have not ended */
	struct timespec coalesce;	/* sleep between two calls of poll(); 0: poll() waits for data */
	struct destination to;
	struct pollfd ready[];
};

static void finish(struct loop *loop, unsigned int index, int err)
{
	loop->ready[index].fd = -1;
	loop->open--;
	receiver_thread__finish(&loop->connections[index], err);
}

/* Read at most one buffer from a connection, so that the other connections do not wait long. */
static void read_ready(struct loop *loop, unsigned int index)
{
	struct receiver_thread *connection = &loop->connections[index];
	size_t size = connection->options->buffer_bytes;
	size_t filled = 0;

	while (filled < size) {
		char *free_bytes = loop->to.buffer + filled;
		ssize_t got = recv(connection->fd, free_bytes, size - filled, MSG_DONTWAIT);
		const struct arrival arrival = { .from = free_bytes, .bytes = got };
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
 * Sleep until a connection has data. In poll() the arrival of a packet wakes this thread, and waking costs the sender CPU time.
 * With --coalesce a timer wakes this thread instead, which then reads everything that has arrived. A signal that interrupts the
 * sleep only causes one early poll().
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
		/* EINTR leaves `ready` unchanged: an unnecessary read finds no data. */
		wait_for_data(loop);
		for (unsigned int i = 0; i < loop->count; i++)
			if (loop->ready[i].fd >= 0 && loop->ready[i].revents)
				read_ready(loop, i);
	}
	/* The CPU time of all connections is reported for the first connection. For every other connection it is unknown (-1). */
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
