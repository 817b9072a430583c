// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "splice.h"
#include "upstream.h"

/* Default of fs.pipe-max-size, the limit of pipes of processes without privileges. */
#define PIPE_BYTES_MAX (1u << 20)

struct channel {
	int ends[2];	/* read end, write end of the pipe */
};

int splice__open(struct flow *flow, size_t slots)
{
	struct channel *channel = calloc(1, sizeof(*channel));
	size_t page = sysconf(_SC_PAGESIZE);
	size_t bytes = slots > PIPE_BYTES_MAX / page ? PIPE_BYTES_MAX : slots * page;
	int err;

	if (!channel)
		return failure__set(&flow->failure, -ENOMEM, "cannot create a pipe: %s", strerror(ENOMEM));
	if (pipe2(channel->ends, O_CLOEXEC)) {
		err = -errno;
		free(channel);
		return failure__set(&flow->failure, err, "cannot create a pipe: %s; raise ulimit -n, or lower --threads", strerror(-err));
	}
	/* The kernel refuses if the user's pipes have too many pages. After a refusal, try smaller sizes or keep the default. */
	while (bytes > page && fcntl(channel->ends[1], F_SETPIPE_SZ, (int)bytes) < 0)
		bytes /= 2;
	flow->state = channel;
	return 0;
}

void splice__close(struct flow *flow)
{
	struct channel *channel = flow->state;

	close(channel->ends[0]);
	close(channel->ends[1]);
	free(channel);
	flow->state = NULL;
}

/*
 * Move everything in the pipe into the socket. `more` is set if the rest of the message follows, so that the kernel
 * need not send a short TCP segment.
 */
static int empty_pipe(struct flow *flow, size_t bytes, bool more)
{
	const struct channel *channel = flow->state;
	int err;

	while (bytes) {
		/* SIGPIPE is ignored: splice(2) has no MSG_NOSIGNAL. */
		ssize_t moved = splice(channel->ends[0], NULL, flow->fd, NULL, bytes, more ? SPLICE_F_MORE : 0);

		flow->counts.splice_calls++;
		flow->counts.spliced_calls++;
		if (moved > 0) {
			flow->counts.bytes += moved;
			flow->counts.spliced_bytes += moved;
			bytes -= moved;
			if (bytes)
				flow->counts.short_sends++;
			continue;
		}
		if (!moved)
			return failure__set(&flow->failure, -EIO, "splice: the pipe was empty %zu bytes too early", bytes);
		err = flow__send_failed(flow, "splice");
		if (err)
			return err;
	}
	return 0;
}

int splice__send_file(struct flow *flow, off_t from)
{
	const struct channel *channel = flow->state;
	size_t left = flow->shape.size_bytes;
	int err = 0;

	while (left && !err) {
		ssize_t given = splice(flow->file, &from, channel->ends[1], NULL, left, 0);

		flow->counts.splice_calls++;
		if (given < 0 && errno == EINTR)
			continue;
		if (given <= 0)
			return failure__set(&flow->failure, given ? -errno : -EIO, "splice from byte %lld of the file of messages: %s",
					    (long long)from, given ? strerror(errno) : "the file ends there");
		left -= given;
		err = empty_pipe(flow, given, left);
	}
	return err;
}

int splice__send_memory(struct flow *flow, struct message *message)
{
	const struct iovec *fields = message->fields;
	const struct channel *channel = flow->state;
	size_t done = 0;
	int err = 0;

	while (done < flow->shape.size_bytes && !err) {
		unsigned int count = done ? flow__remainder(fields, flow->shape.fields, done, flow->rest) : flow->shape.fields;
		ssize_t given = vmsplice(channel->ends[1], done ? flow->rest : fields, count, 0);

		flow->counts.vmsplice_calls++;
		if (given < 0 && errno == EINTR)
			continue;
		if (given < 0)
			return failure__set(&flow->failure, -errno, "vmsplice: %s", strerror(errno));
		done += given;
		err = empty_pipe(flow, given, done < flow->shape.size_bytes);
	}
	return err;
}

/* Forward data on arrival, without SPLICE_F_MORE. Each turn moves all data in the socket, or as much as fits in the pipe. */
int splice__relay(struct flow *flow)
{
	const struct channel *channel = flow->state;
	size_t left = flow->shape.size_bytes;

	while (left) {
		ssize_t got = splice(flow->upstream, NULL, channel->ends[1], NULL, left, SPLICE_F_MOVE);
		int err = upstream__account(flow, "splice", got);

		flow->counts.splice_calls++;
		if (!err && got > 0)
			err = empty_pipe(flow, got, false);
		if (err)
			return err;
		left -= got > 0 ? got : 0;
	}
	return 0;
}
