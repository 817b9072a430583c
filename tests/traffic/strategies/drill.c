// SPDX-License-Identifier: GPL-2.0
#include <string.h>

#include "strategy.h"
#include "zerocopy_socket.h"

/*
 * The mistake that zero_copy must not make: the memory is rewritten as soon as sendmsg() returns,
 * while the kernel still sends from it. With --verify --touch (the core writes each message anew, so
 * nothing else is wrong) the receiver must find wrong bytes: it proves that the check can fail.
 */
static int drill_send(struct flow *flow, struct message *message)
{
	int err = zerocopy_socket__send(flow, message->fields, NULL);

	for (unsigned int i = 0; i < flow->shape.fields; i++)
		memset(message->fields[i].iov_base, '!', message->fields[i].iov_len);
	return err;
}

const struct strategy strategy_drill = {
	.name = "drill",
	.claim = { 0, 0, "zero-copy with buffers rewritten before their completion: corrupts the stream" },
	.open = zerocopy_socket__open,
	.close = zerocopy_socket__close,
	.send = drill_send,
	.reap = zerocopy_socket__reap,
};
