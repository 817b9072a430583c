// SPDX-License-Identifier: GPL-2.0-only
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "check.h"
#include "receiver_thread.h"
#include "sender_thread.h"

#define SIZE_BYTES 10000u

/* Create a TCP connection over lo. The receive buffer is far smaller than ten messages. */
static void connect_pair(int ends[2])
{
	struct socket_options options = { .address = "127.0.0.1", .rcvbuf_bytes = SOCKET_BUFFER_MIN, .nodelay = true };
	struct failure failure = { "" };
	int listener = socket__listen(&options, 1, &failure);

	options.port = socket__port(listener);
	ends[1] = socket__connect(&options, &failure);
	poll(&(struct pollfd){ .fd = listener, .events = POLLIN }, 1, 5000);
	ends[0] = socket__accept(listener, &failure);
	close(listener);
}

static bool is_filled(const struct message *message, unsigned int fields, char byte)
{
	for (unsigned int i = 0; i < fields; i++)
		for (size_t at = 0; at < message->fields[i].iov_len; at++)
			if (((char *)message->fields[i].iov_base)[at] != byte)
				return false;
	return true;
}

/* Return true if a message is not overwritten: field i holds its letter. */
static bool has_letters(const struct message *message)
{
	return ((char *)message->fields[0].iov_base)[0] == 'A' && ((char *)message->fields[1].iov_base)[0] == 'B';
}

/* Send ten messages, overwrite the last one after its send call has returned, and count its old and new bytes at the receiver. */
static void send_and_count(const char *impl, unsigned int fields, uint64_t *old_bytes, uint64_t *new_bytes)
{
	static struct sender_thread sender;
	static struct receiver_thread receiver;
	const struct options options = {
		.strategy = strategy__find(impl), .messages = 10, .time_every = 1, .rewrite = REWRITE_RETURNED,
		.reading = &reading_read, .threads = 1,
		.shape = { .size_bytes = SIZE_BYTES, .fields = fields, .slots = 10, .in_arena = true },
	};
	static char buffer[10 * SIZE_BYTES];
	struct arrival arrival = { .from = buffer, .bytes = sizeof(buffer) };
	const struct message *last;
	int ends[2];

	connect_pair(ends);
	CHECK(ends[0] >= 0 && ends[1] >= 0);
	sender_thread__init(&sender, &options, NULL, NULL, 0, ends[0]);
	sender_thread__prepare(&sender, 0);
	last = &sender.ring.messages[9];
	while (sender_thread__has_more(&sender)) {
		CHECK(has_letters(last));
		sender_thread__send_next(&sender);
	}
	CHECK_EQUAL(sender.err, 0);
	CHECK(has_letters(&sender.ring.messages[8]) && is_filled(last, fields, REWRITE_NEW));
	/* The memory was overwritten while a zero-copy send was still pending. */
	CHECK_EQUAL(last->pending > 0, options.strategy->reap != NULL);
	CHECK(recv(ends[1], buffer, sizeof(buffer), MSG_WAITALL) == sizeof(buffer));
	receiver_thread__init(&receiver, &options, 0, ends[1], -1, NULL);
	CHECK_EQUAL(receiver_thread__account(&receiver, &arrival), 0);
	*old_bytes = count__get(&receiver.counts.old_bytes);
	*new_bytes = count__get(&receiver.counts.new_bytes);
	sender_thread__rest(&sender);
	CHECK_EQUAL(sender.err, 0);
	CHECK_EQUAL(last->pending, 0);
	sender_thread__finish(&sender);
	close(ends[1]);
}

TEST("rewrite: a copied message arrives as it was sent")
{
	uint64_t old_bytes = 0, new_bytes = 0;

	send_and_count("one_copy", 8, &old_bytes, &new_bytes);
	CHECK_EQUAL(old_bytes, SIZE_BYTES);
	CHECK_EQUAL(new_bytes, 0);
}

TEST("rewrite: zero_copy breaks its rule only here, and what waits in the socket arrives overwritten")
{
	uint64_t old_bytes = 0, new_bytes = 0;

	send_and_count("zero_copy", 8, &old_bytes, &new_bytes);
	CHECK_EQUAL(old_bytes, 0);
	CHECK_EQUAL(new_bytes, SIZE_BYTES);
}

TEST("rewrite: memory that vmsplice gave away arrives overwritten")
{
	uint64_t old_bytes = 0, new_bytes = 0;

	send_and_count("vmsplice", 2, &old_bytes, &new_bytes);
	CHECK_EQUAL(old_bytes, 0);
	CHECK_EQUAL(new_bytes, SIZE_BYTES);
}
