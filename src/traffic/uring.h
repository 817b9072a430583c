/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TRAFFIC_URING_H
#define TRAFFIC_URING_H

#include <liburing.h>

#include "flow.h"

/*
 * One io_uring for each connection, and one request to send in flight on it: two could be sent in the other order.
 * A request of SEND_ZC ends twice: with its result, and, when the kernel needs the memory no more, with a notification
 * (io_uring_enter(2), IORING_OP_SEND_ZC). Requests of such sends carry the number that flow->zerocopy gives them.
 */
struct uring {
	struct io_uring ring;
	bool registered;
	bool refused;		/* the last request was, and its notification is still to come */
	uint64_t starved_ns;	/* since when there is no memory, with nothing in flight; 0: there is */
};

/* Makes flow->state a struct uring. What io_uring cannot do here is refused, with the next step. */
int uring__open(struct flow *flow);
void uring__close(struct flow *flow);

/* SEND or SENDMSG of a whole message; returns when its memory is the caller's again. */
int uring__send(struct flow *flow, struct message *message);

/* The same, and SEND_ZC or SENDMSG_ZC are known here, with what they report. */
int uring__open_zc(struct flow *flow);
void uring__close_zc(struct flow *flow);
/* message->pending is raised by each request and lowered by its notification. */
int uring__send_zc(struct flow *flow, struct message *message);
int uring__reap(struct flow *flow, bool drain);

#endif
