// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "memory.h"
#include "preflight.h"
#include "receiver_thread.h"

/* Descriptors that do not belong to a connection: stdio, listener, event and signal descriptors, /proc files, and spare. */
#define OTHER_DESCRIPTORS 32

/*
 * Return the number of descriptors of one connection: its socket and, as far as the strategy needs, a file, a ring and the two
 * ends of a pipe. A relay also needs both ends of its upstream connection and a listening socket.
 */
static unsigned int descriptors_per_connection(const struct options *options)
{
	const struct strategy *strategy = options->strategy;

	if (options->role != ROLE_SEND)
		return 1;
	return 1 + strategy->in_file + strategy->in_ring +
	       (strategy->gives_memory || strategy->splices || options->via == VIA_SPLICE ? 2 : 0) +
	       (strategy->relays ? 3 : 0);
}

static int check_descriptors(const struct options *options, struct failure *failure)
{
	unsigned int threads = options->threads;
	rlim_t needed = threads * descriptors_per_connection(options) + OTHER_DESCRIPTORS;
	struct rlimit limit;

	if (getrlimit(RLIMIT_NOFILE, &limit) || limit.rlim_cur >= needed)
		return 0;
	if (limit.rlim_max < needed)
		return failure__set(failure, -EMFILE, "--threads %u: needs %llu file descriptors, the hard limit "
				    "is %llu; raise ulimit -n", threads, (unsigned long long)needed,
				    (unsigned long long)limit.rlim_max);
	limit.rlim_cur = needed;
	if (setrlimit(RLIMIT_NOFILE, &limit))
		return failure__set(failure, -errno, "--threads %u: cannot raise the limit of file descriptors: %s; "
				    "raise ulimit -n", threads, strerror(errno));
	return 0;
}

/* Check that this machine has enough memory for the receive buffers of all threads. */
static int check_buffers(const struct options *options, struct failure *failure)
{
	uint64_t each = options->buffer_bytes * (options->reading->buffers ?: 1);
	uint64_t needed = each * options->threads;
	uint64_t available = memory__meminfo_bytes("MemAvailable");

	if (!available || needed <= available)
		return 0;
	return failure__set(failure, -ENOMEM, "--buffer: %llu MiB in each of %u threads: needs %llu MiB, %llu MiB are "
			    "available; lower --buffer", (unsigned long long)each >> 20,
			    options->threads, (unsigned long long)needed >> 20,
			    (unsigned long long)available >> 20);
}

static int try_strategy(const struct options *options, int fd, struct failure *failure)
{
	const struct strategy *strategy = options->strategy;
	struct flow *flow;
	int err = 0;

	if (!strategy->open)
		return 0;
	flow = calloc(1, sizeof(*flow));
	if (!flow)
		return failure__set(failure, -ENOMEM, "--impl %s: %s", strategy->name, strerror(ENOMEM));
	flow->fd = fd;
	flow->upstream = -1;
	flow->shape = options->shape;
	flow->expects_reply = options->mode == MODE_RR;
	flow->rewrites = options->touch;
	flow->encrypts = options->tls;
	flow->issue = options->issue;
	flow->via = options->via;
	flow->batch = options->batch;
	err = strategy->open(flow);
	if (err)
		failure__set(failure, err, "%s", flow->failure.text);
	else if (strategy->close)
		strategy->close(flow);
	free(flow);
	return err;
}

int preflight__check(const struct options *options, struct failure *failure)
{
	int err = check_descriptors(options, failure);
	int fd;

	if (!err && options->role == ROLE_RECV)
		err = check_buffers(options, failure);
	if (err)
		return err;
	fd = socket__probe(&options->socket, failure);
	if (fd < 0)
		return fd;
	if (options->tls)
		err = tls__check(fd, failure);
	if (!err && options->role == ROLE_SEND) {
		err = message_shape__check(&options->shape, options->threads, failure);
		if (!err)
			err = try_strategy(options, fd, failure);
	} else if (!err) {
		err = receiver_thread__try(options, fd, failure);
	}
	close(fd);
	return err;
}
