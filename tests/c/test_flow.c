// SPDX-License-Identifier: GPL-2.0-only
#include <poll.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "check.h"
#include "flow.h"
#include "pattern.h"
#include "socket.h"
#include "strategy.h"
#include "upstream.h"

#define SIZE_BYTES (300u << 10)
#define FIELDS 5
#define MESSAGES 3

/* Create a connection over lo. The sending end is non-blocking and has a small buffer. */
static int connect_pair(int ends[2], struct failure *failure)
{
	struct socket_options options = {
		.address = "127.0.0.1", .nodelay = true, .sndbuf_bytes = 16384,
	};
	int listener = socket__listen(&options, 1, failure);
	int on = 1;

	if (listener < 0)
		return listener;
	options.port = socket__port(listener);
	ends[1] = socket__connect(&options, failure);
	/* On a busy machine connect() may return before the listener's queue has the connection. */
	if (ends[1] >= 0)
		poll(&(struct pollfd){ .fd = listener, .events = POLLIN }, 1, 5000);
	ends[0] = ends[1] < 0 ? -1 : socket__accept(listener, failure);
	close(listener);
	return ends[0] < 0 ? -1 : ioctl(ends[0], FIONBIO, &on);
}

struct reader {
	int fd;
	struct stream_check *check;
};

static void *read_all(void *argument)
{
	struct reader *reader = argument;
	static char buffer[8000];
	ssize_t got;

	while ((got = recv(reader->fd, buffer, sizeof(buffer), 0)) > 0)
		stream_check__feed(reader->check, buffer, got);
	return NULL;
}

/* With short sends and EAGAIN, no strategy loses, repeats or moves a byte. */
THREADS_TEST("flow: short sends are continued")
{
	static const struct options options = { .socket = { .nodelay = true } };

	for (const struct strategy *const *item = strategies; *item; item++) {
		const struct message_shape shape = {
			.size_bytes = SIZE_BYTES, .fields = FIELDS, .slots = MESSAGES,
			.in_file = (*item)->in_file,
		};
		struct stream_check check = { .size_bytes = SIZE_BYTES, .slots = MESSAGES };
		const struct strategy *strategy = *item;
		struct histogram times = { 0 };
		struct iovec rest[FIELDS];
		struct reader reader;
		struct ring ring;
		pthread_t thread;
		struct flow flow;
		int ends[2];

		memset(&flow, 0, sizeof(flow));
		flow.shape = shape;
		flow.rest = rest;
		flow.completion_time = &times;
		CHECK_EQUAL(connect_pair(ends, &flow.failure), 0);
		CHECK_EQUAL(ring__open(&ring, &shape, &flow.failure), 0);
		for (unsigned int i = 0; i < MESSAGES; i++)
			message__write_pattern(&ring.messages[i], FIELDS, i);
		flow.fd = ends[0];
		flow.file = ring.file;
		flow.upstream = -1;
		if (strategy->relays)
			CHECK_EQUAL(upstream__open(&flow, &ring, &options), 0);
		reader = (struct reader){ ends[1], &check };
		pthread_create(&thread, NULL, read_all, &reader);
		CHECK_EQUAL(strategy->open ? strategy->open(&flow) : 0, 0);
		for (unsigned int i = 0; i < MESSAGES; i++) {
			CHECK_EQUAL(strategy->send(&flow, ring__next(&ring)), 0);
			flow.counts.messages++;
		}
		CHECK_EQUAL(strategy->reap ? strategy->reap(&flow, true) : 0, 0);
		close(ends[0]);
		pthread_join(thread, NULL);
		close(ends[1]);
		CHECK_EQUAL(check.wrong_bytes, 0);
		CHECK_EQUAL(check.checked_bytes, flow.counts.bytes);
		if (strcmp(strategy->name, "null")) {
			CHECK_EQUAL(flow.counts.bytes, MESSAGES * SIZE_BYTES);
			/* io_uring waits for room in the kernel, so it has neither short sends nor EAGAIN. */
			CHECK(strategy->in_ring || (flow.counts.short_sends && flow.counts.eagain));
		}
		CHECK_EQUAL(flow.zerocopy.counts.in_flight, 0);
		CHECK_EQUAL(flow.zerocopy.counts.sends, flow.zerocopy.counts.completions);
		for (unsigned int i = 0; i < MESSAGES; i++)
			CHECK_EQUAL(ring.messages[i].pending, 0);
		if (strategy->close)
			strategy->close(&flow);
		upstream__close(&flow);
		ring__close(&ring);
	}
}

THREADS_TEST("flow: the remainder starts where the send ended")
{
	static char bytes[60];
	const struct iovec fields[] = { { bytes, 10 }, { bytes + 10, 20 }, { bytes + 30, 30 } };
	struct iovec rest[3];

	for (size_t done = 0; done < sizeof(bytes); done++) {
		unsigned int count = flow__remainder(fields, 3, done, rest);
		size_t sum = 0;

		CHECK(rest[0].iov_base == bytes + done);
		for (unsigned int i = 0; i < count; i++)
			sum += rest[i].iov_len;
		CHECK_EQUAL(sum, sizeof(bytes) - done);
	}
	CHECK_EQUAL(flow__remainder(fields, 3, sizeof(bytes), rest), 0);
}
