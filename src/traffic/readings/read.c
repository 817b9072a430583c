// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <sys/socket.h>

#include "receiver_thread.h"

/* Receive with recv(2) into one buffer: each byte is copied once, out of the kernel. */
static int receive_read(struct receiver_thread *thread, struct arrival *arrival)
{
	ssize_t got = recv(thread->fd, thread->to.buffer, thread->options->buffer_bytes, 0);

	return arrival__of_call(arrival, thread->to.buffer, got);
}

const struct reading reading_read = { .name = "read", .call = "recv", .receive = receive_read };
