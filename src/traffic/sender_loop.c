// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <poll.h>
#include <stdlib.h>

#include "sender_loop.h"

/*
 * So much is sent on a connection between two looks at who has room. poll() calls a socket writable from a third
 * of its send buffer on (sk_stream_is_writeable()), which is more than this once the kernel has let it grow. A
 * smaller one (--sndbuf) is filled within the turn, and waited for.
 */
#define TURN_BYTES (256u << 10)
#define TURNS_MAX 64u

struct loop {
	struct sender_thread *connections;
	unsigned int count;
	unsigned int left;		/* that have more to send */
	unsigned int turns;		/* messages on each connection between two looks */
	struct pollfd ready[];
};

/* Those that have come to their end, or have failed, need no more turns. */
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

	/* The last one may as well wait inside its send. EINTR: look again. */
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
	/* The thread's time is that of all: it stands on the first, and nobody knows the others'. */
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
