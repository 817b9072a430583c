// SPDX-License-Identifier: GPL-2.0-only
#include <sys/socket.h>

#include "receiver_thread.h"

/* Receive with recvmsg(2) into --fields pieces of the buffer. */
static int receive_recvmsg(struct receiver_thread *thread, struct arrival *arrival)
{
	struct msghdr header = { .msg_iov = thread->to.pieces, .msg_iovlen = thread->to.count };

	return arrival__of_call(arrival, thread->to.buffer, recvmsg(thread->fd, &header, 0));
}

const struct reading reading_recvmsg = {
	.name = "recvmsg", .call = "recvmsg", .into_fields = true, .receive = receive_recvmsg,
};
