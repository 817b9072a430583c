// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "upstream.h"

#define ACCEPT_LIMIT_MS 10000

/* Create a connection over lo: ends[0] for the relay, ends[1] for its feeder. Return 0 or -errno. */
static int connect_ends(const struct options *options, int ends[2], struct failure *failure)
{
	struct socket_options socket = options->socket;
	struct pollfd arrived = { .events = POLLIN };
	int listener;

	/* Options such as --listen and --sndbuf are for the connection to the receiver, not for the upstream connection. */
	socket.address = "127.0.0.1";
	socket.port = 0;
	socket.sndbuf_bytes = 0;
	listener = socket__listen(&socket, 1, failure);
	if (listener < 0)
		return listener;
	socket.port = socket__port(listener);
	ends[1] = socket__connect(&socket, failure);
	if (ends[1] < 0) {
		close(listener);
		return ends[1];
	}
	arrived.fd = listener;
	poll(&arrived, 1, ACCEPT_LIMIT_MS);
	ends[0] = socket__accept(listener, failure);
	close(listener);
	if (ends[0] >= 0)
		return 0;
	close(ends[1]);
	return failure__set(failure, ends[0], "cannot accept the upstream connection: %s", strerror(-ends[0]));
}

/* Move the feeder to CPUs that the relay does not use, so that it does not disturb the relay. Without such CPUs, allow all. */
static void leave_cpus(const struct placement *placement)
{
	cpu_set_t set;

	memset(&set, 0xff, sizeof(set));
	for (unsigned int i = 0; i < placement->count; i++)
		CPU_CLR(placement->cpus[i], &set);
	if (!sched_setaffinity(0, sizeof(set), &set))
		return;
	memset(&set, 0xff, sizeof(set));
	sched_setaffinity(0, sizeof(set), &set);
}

/*
 * Send the messages of the ring to the relay, in turn, without end. This function runs after fork() in a program with several
 * threads, so it must neither allocate memory nor take a lock.
 */
static _Noreturn void feed(const struct flow *relay, struct ring *ring, const struct options *options, int end, pid_t parent)
{
	struct flow own = { .fd = STDIN_FILENO, .shape = relay->shape, .rest = relay->rest };

	prctl(PR_SET_NAME, "upstream");
	/* Die with the thread that forked this process. */
	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(0);
	/* Close all descriptors of the relay, so that the relay's connections and stdio pipes close when the relay exits. */
	if (dup2(end, STDIN_FILENO) < 0 || syscall(SYS_close_range, STDIN_FILENO + 1, ~0u, 0))
		_exit(1);
	leave_cpus(&options->placement);
	while (!flow__sendmsg(&own, ring__next(ring)))
		;
	_exit(0);
}

int upstream__open(struct flow *flow, struct ring *ring, const struct options *options)
{
	pid_t parent = getpid();
	int ends[2];
	int err = connect_ends(options, ends, &flow->failure);

	if (err)
		return err;
	flow->upstream = ends[0];
	flow->feeder = fork();
	if (!flow->feeder)
		feed(flow, ring, options, ends[1], parent);
	close(ends[1]);
	if (flow->feeder > 0)
		return 0;
	flow->feeder = 0;
	return failure__set(&flow->failure, -errno, "cannot fork the upstream sender: %s; raise ulimit -u, or lower --threads",
			    strerror(errno));
}

void upstream__close(struct flow *flow)
{
	if (flow->feeder) {
		kill(flow->feeder, SIGKILL);
		waitpid(flow->feeder, NULL, 0);
	}
	if (flow->upstream >= 0)
		close(flow->upstream);
	flow->feeder = 0;
	flow->upstream = -1;
}

int upstream__account(struct flow *flow, const char *call, ssize_t got)
{
	if (got > 0) {
		flow->counts.taken_calls++;
		flow->counts.taken_bytes += got;
		return 0;
	}
	if (got < 0 && errno == EINTR)
		return 0;
	return failure__set(&flow->failure, got ? -errno : -EPIPE, "%s from upstream: %s", call,
			    got ? strerror(errno) : "the process that sends to the relay has ended; was it killed?");
}
