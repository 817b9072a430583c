// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "splice.h"
#include "upstream.h"

/* pipe-max-size, without privileges, on every machine that nobody has changed it on. */
#define PIPE_BYTES_MAX (1u << 20)

struct channel {
	int ends[2];	/* out of the pipe, into it */
};

int splice__open(struct flow *flow, size_t slots)
{
	struct channel *channel = calloc(1, sizeof(*channel));
	size_t page = sysconf(_SC_PAGESIZE);
	size_t bytes = slots > PIPE_BYTES_MAX / page ? PIPE_BYTES_MAX : slots * page;
	int err;

	if (!channel)
		return failure__set(&flow->failure, -ENOMEM, "pipe: %s", strerror(ENOMEM));
	if (pipe2(channel->ends, O_CLOEXEC)) {
		err = -errno;
		free(channel);
		return failure__set(&flow->failure, err, "pipe: %s: raise ulimit -n, or lower --threads", strerror(-err));
	}
	/* Refused where the user's pipes have too many pages already: what is there then has to do. */
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

/* All that the pipe holds goes into the socket. `more` of the same message follows: it does not leave as a segment of its own. */
static int empty(struct flow *flow, size_t bytes, bool more)
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
			return failure__set(&flow->failure, -EIO, "splice: pipe: empty before the last %zu bytes", bytes);
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
			return failure__set(&flow->failure, given ? -errno : -EIO, "splice: messages at %lld of their file: %s",
					    (long long)from, given ? strerror(errno) : "the file ends");
		left -= given;
		err = empty(flow, given, left);
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
			return failure__set(&flow->failure, -errno, "vmsplice: pipe: %s", strerror(errno));
		done += given;
		err = empty(flow, given, done < flow->shape.size_bytes);
	}
	return err;
}

/* What has come goes on at once, without SPLICE_F_MORE: as much as a pipe takes, or a socket has. */
int splice__relay(struct flow *flow)
{
	const struct channel *channel = flow->state;
	size_t left = flow->shape.size_bytes;

	while (left) {
		ssize_t got = splice(flow->upstream, NULL, channel->ends[1], NULL, left, SPLICE_F_MOVE);
		int err = upstream__took(flow, "splice", got);

		flow->counts.splice_calls++;
		if (!err && got > 0)
			err = empty(flow, got, false);
		if (err)
			return err;
		left -= got > 0 ? got : 0;
	}
	return 0;
}
