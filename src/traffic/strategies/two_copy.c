// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>

#include "clock.h"
#include "strategy.h"

/* Allocate the buffer in flow->state into which the fields of each message are copied. */
static int two_copy_open(struct flow *flow)
{
	flow->state = malloc(flow->shape.size_bytes);
	if (flow->state)
		return 0;
	return failure__set(&flow->failure, -ENOMEM, "cannot allocate a gather buffer of %zu bytes: %s; lower --size",
			    flow->shape.size_bytes, strerror(ENOMEM));
}

static void two_copy_close(struct flow *flow)
{
	free(flow->state);
}

static void gather(char *to, const struct iovec *fields, unsigned int count)
{
	for (unsigned int i = 0; i < count; i++) {
		memcpy(to, fields[i].iov_base, fields[i].iov_len);
		to += fields[i].iov_len;
	}
}

/* Return the number of context switches of this thread. */
static long context_switches(void)
{
	struct rusage usage;

	return getrusage(RUSAGE_THREAD, &usage) ? -1 : usage.ru_nvcsw + usage.ru_nivcsw;
}

/*
 * Time the copy. If another task interrupted it, discard the time, because it includes that task, and add 1 to the
 * number of discarded times.
 */
static void timed_gather(struct flow *flow, const struct message *message)
{
	long switches_before = context_switches();
	uint64_t before_ns = clock__now_ns();
	uint64_t elapsed_ns;

	gather(flow->state, message->fields, flow->shape.fields);
	elapsed_ns = clock__now_ns() - before_ns;
	if (context_switches() != switches_before) {
		flow->counts.gather_broken_messages++;
		return;
	}
	flow->counts.gather_timed_ns += elapsed_ns;
	flow->counts.gather_timed_messages++;
}

static int two_copy_send(struct flow *flow, struct message *message)
{
	if (flow->timed) {
		timed_gather(flow, message);
	} else {
		gather(flow->state, message->fields, flow->shape.fields);
	}
	return flow__send(flow, flow->state, flow->shape.size_bytes);
}

const struct strategy strategy_two_copy = {
	.name = "two_copy",
	.aliases = (const char *const[]){ "twocopy", "a1", NULL },
	.claim = { 1, 1, "memcpy() of the fields into one buffer, then one send()" },
	.open = two_copy_open,
	.close = two_copy_close,
	.send = two_copy_send,
};
