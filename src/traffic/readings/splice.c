// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "receiver_thread.h"

/* Receive with splice(2) into a pipe and on to /dev/null: like a proxy, but without the cost of sending. */
struct spliced {
	int pipe[2];
	int null_fd;
};

static void close_splice(struct receiver_thread *thread)
{
	struct spliced *spliced = thread->state;

	close(spliced->pipe[0]);
	close(spliced->pipe[1]);
	close(spliced->null_fd);
	free(spliced);
}

static int open_splice(struct receiver_thread *thread)
{
	struct spliced *spliced = malloc(sizeof(*spliced));
	int err = 0;

	if (!spliced)
		return -ENOMEM;
	*spliced = (struct spliced){ .pipe = { -1, -1 }, .null_fd = -1 };
	thread->state = spliced;
	spliced->null_fd = open("/dev/null", O_WRONLY | O_CLOEXEC);
	if (spliced->null_fd < 0 || pipe2(spliced->pipe, O_CLOEXEC) ||
	    fcntl(spliced->pipe[1], F_SETPIPE_SZ, thread->options->buffer_bytes) < 0)
		err = -errno;
	if (err)
		close_splice(thread);
	return err;
}

static int receive_splice(struct receiver_thread *thread, struct arrival *arrival)
{
	const struct spliced *spliced = thread->state;
	ssize_t got = splice(thread->fd, NULL, spliced->pipe[1], NULL, thread->options->buffer_bytes, SPLICE_F_MOVE);

	arrival->way = WAY_SPLICED;
	for (ssize_t left = got; left > 0;) {
		ssize_t gone = splice(spliced->pipe[0], NULL, spliced->null_fd, NULL, left, SPLICE_F_MOVE);

		if (gone < 0 && errno != EINTR)
			return -errno;
		left -= gone > 0 ? gone : 0;
	}
	return arrival__of_call(arrival, NULL, got);
}

const struct reading reading_splice = {
	.name = "splice", .call = "splice", .way = WAY_SPLICED,
	.needs = "a pipe of --buffer bytes: lower --buffer or raise fs.pipe-max-size and fs.pipe-user-pages-soft",
	.open = open_splice, .receive = receive_splice, .close = close_splice,
};
