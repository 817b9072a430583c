// SPDX-License-Identifier: GPL-2.0-only
#include <sys/socket.h>

#include "receiver_thread.h"

/* Receive with recv(2) and MSG_TRUNC: the kernel drops the bytes without copying them (tcp(7)). */
static int receive_trunc(struct receiver_thread *thread, struct arrival *arrival)
{
	arrival->way = WAY_DROPPED;
	return arrival__of_call(arrival, NULL, recv(thread->fd, NULL, thread->options->buffer_bytes, MSG_TRUNC));
}

const struct reading reading_trunc = { .name = "trunc", .call = "recv", .way = WAY_DROPPED, .receive = receive_trunc };
