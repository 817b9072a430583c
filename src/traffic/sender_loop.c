// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "sender_loop.h"

/*
 * Bytes sent on a connection between two calls of poll(). A socket counts as writable while a third of its send buffer is free
 * (sk_stream_is_writeable()). A third is more than this value once the kernel has enlarged the buffer. A smaller buffer
 * (--sndbuf) becomes full within a turn, and the send call waits.
 */
#define TURN_BYTES (256u << 10)
#define TURNS_MAX 64u

struct loop {
	struct sender_thread *connections;
	unsigned int count;
	unsigned int left;		/* connections that have more to send */
	unsigned int turns;		/* messages on each connection between two calls of poll() */
	struct pollfd ready[];
};

/* Count the connections that have more to send, and exclude all other connections from poll(). */
static void count_left(struct loop *loop)
{
	unsigned int left = 0;

	for (unsigned int i = 0; i < loop->count; i++) {
		if (sender_thread__has_more(&loop->connections[i]))
			left++;
		else
			loop->ready[i].fd = -1;
	}
	loop->left = left;
}

static void send_in_turn(struct loop *loop)
{
	struct gate *gate = loop->connections->gate;

	/* A single connection waits in its send call instead. After EINTR the caller calls again. */
	if (loop->left > 1 && poll(loop->ready, loop->count, -1) < 0)
		return;
	for (unsigned int turn = 0; turn < loop->turns; turn++) {
		for (unsigned int i = 0; i < loop->count; i++) {
			struct sender_thread *connection = &loop->connections[i];

			if (!gate__is_open(gate))
				return;
			if (loop->ready[i].fd < 0 || (loop->left > 1 && !loop->ready[i].revents))
				continue;
			sender_thread__send_next(connection);
			if (sender_thread__has_more(connection))
				continue;
			count_left(loop);
			if (connection->err)
				gate__notify(gate);
		}
	}
}

static void prepare(struct loop *loop)
{
	size_t size = loop->connections->options->shape.size_bytes;
	size_t turns = TURN_BYTES / size;

	loop->turns = turns < 1 ? 1 : turns > TURNS_MAX ? TURNS_MAX : turns;
	for (unsigned int i = 0; i < loop->count; i++) {
		struct sender_thread *connection = &loop->connections[i];

		connection->flow.sibling = &loop->connections[(i + 1) % loop->count].flow;
		loop->ready[i] = (struct pollfd){ .fd = connection->flow.fd, .events = POLLOUT };
		sender_thread__prepare(connection, 0);
		if (connection->err)
			gate__notify(connection->gate);
	}
	count_left(loop);
}

static void finish(struct loop *loop)
{
	/* The CPU time of all connections is reported for the first connection. For every other connection it is unknown (-1). */
	for (unsigned int i = loop->count; i--;) {
		sender_thread__finish(&loop->connections[i]);
		if (i)
			loop->connections[i].summary.cpu_ns = -1;
	}
	free(loop);
}

static void *run_loop(void *argument)
{
	struct loop *loop = argument;
	struct gate *gate = loop->connections->gate;
	bool going = false;

	prepare(loop);
	do {
		while (loop->left && gate__is_open(gate))
			send_in_turn(loop);
		for (unsigned int i = 0; going && i < loop->count; i++)
			sender_thread__rest(&loop->connections[i]);
		count_left(loop);
		going = true;
	} while (gate__park(gate, !loop->left));
	finish(loop);
	return NULL;
}

int sender_loop__start(struct sender_thread *connections, unsigned int count)
{
	struct loop *loop = calloc(1, sizeof(*loop) + count * sizeof(*loop->ready));
	int err;

	if (!loop)
		return -ENOMEM;
	loop->connections = connections;
	loop->count = count;
	err = -pthread_create(&connections->thread, NULL, run_loop, loop);
	connections->has_thread = !err;
	if (err)
		free(loop);
	return err;
}
