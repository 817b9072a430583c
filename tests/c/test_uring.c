// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"
#include "socket.h"
#include "strategy.h"

#define SIZE_BYTES 10000u
#define MESSAGES 23u

/* Create a TCP connection over lo. An end is -1 if it could not be created. */
static void connect_pair(int ends[2])
{
	const struct socket_options here = { .address = "127.0.0.1" };
	struct socket_options there = here;
	struct failure failure = { "" };
	int listener = socket__listen(&here, 1, &failure);

	there.port = socket__port(listener);
	ends[1] = socket__connect(&there, &failure);
	ends[0] = socket__accept(listener, &failure);
	close(listener);
}

static void read_message(int fd)
{
	char buffer[SIZE_BYTES];

	CHECK(recv(fd, buffer, sizeof(buffer), MSG_WAITALL) == SIZE_BYTES);
}

static void send_23(const struct strategy *strategy)
{
	static char memory[SIZE_BYTES];
	struct iovec fields[2] = { { memory, 4000 }, { memory + 4000, SIZE_BYTES - 4000 } }, rest[2];
	struct message message = { .fields = fields };
	struct histogram completion_time = { 0 };
	struct flow flow = {
		.shape = { .size_bytes = SIZE_BYTES, .fields = 2, .slots = 4 },
		.rest = rest, .completion_time = &completion_time,
	};
	int ends[2];

	connect_pair(ends);
	CHECK(ends[0] >= 0 && ends[1] >= 0);
	flow.fd = ends[0];
	CHECK(!strategy->open(&flow));
	for (unsigned int i = 0; i < MESSAGES; i++) {
		CHECK(!strategy->send(&flow, &message));
		read_message(ends[1]);
	}
	if (strategy->reap) {
		CHECK(!strategy->reap(&flow, true));
		CHECK(flow.zerocopy.counts.completions == MESSAGES);
		CHECK(flow.zerocopy.counts.bytes_sent == MESSAGES * SIZE_BYTES);
		/* The kernel copies, because the other end is on this machine. */
		CHECK(flow.zerocopy.counts.bytes_copied == MESSAGES * SIZE_BYTES);
		CHECK(!message.pending);
	}
	CHECK(flow.counts.ring_requests == MESSAGES);
	CHECK(flow.counts.bytes == MESSAGES * SIZE_BYTES);
	/* A refused request is counted, but its notification is not a completion. */
	shutdown(ends[0], SHUT_WR);
	CHECK(strategy->send(&flow, &message) == -EPIPE);
	CHECK(strstr(flow.failure.text, "the receiver closed the connection"));
	CHECK(flow.counts.ring_requests == MESSAGES + 1);
	CHECK(flow.zerocopy.counts.completions == (strategy->reap ? MESSAGES : 0));
	strategy->close(&flow);
	close(ends[0]);
	close(ends[1]);
}

/* Skip the test if io_uring is not allowed or not in this build. */
static bool works(const struct strategy *strategy)
{
	struct flow flow = { .fd = socket(AF_INET, SOCK_STREAM, 0), .shape = { .size_bytes = 1, .fields = 2, .slots = 1 } };
	bool opened = strategy && !strategy->open(&flow);

	if (opened)
		strategy->close(&flow);
	close(flow.fd);
	return opened;
}

static void try_strategy(const char *name)
{
	const struct strategy *strategy = strategy__find(name);

	if (works(strategy))
		send_23(strategy);
}

TEST("23 requests are 23 requests, and one that is refused")
{
	try_strategy("uring_send");
}

TEST("23 notifications, and one of a request that was refused")
{
	try_strategy("uring_zc");
}
