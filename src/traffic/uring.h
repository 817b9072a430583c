/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TRAFFIC_URING_H
#define TRAFFIC_URING_H

#include <liburing.h>

#include "flow.h"

/*
 * Each connection has an io_uring with at most one send request in flight, because the kernel might reorder requests. A SEND_ZC
 * request completes twice: with its result, and with a notification once the kernel no longer needs the memory
 * (IORING_OP_SEND_ZC in io_uring_enter(2)). These requests carry the number that flow->zerocopy gives them.
 */
struct uring {
	struct io_uring ring;
	bool registered;	/* the memory of the messages is registered */
	bool refused;		/* the last request was refused, and its notification has not come */
	uint64_t starved_ns;	/* time of the first ENOMEM with nothing in flight; 0: requests get memory */
};

/* Create the io_uring in flow->state. Return 0, or -errno with the reason and the next step in flow->failure. */
int uring__open(struct flow *flow);
void uring__close(struct flow *flow);

/* Send a whole message with SEND or SENDMSG. The caller may reuse the buffer once this function returns. */
int uring__send(struct flow *flow, struct message *message);

/* Like uring__open(); also check that the kernel has SEND_ZC and SENDMSG_ZC, and that they report copies. */
int uring__open_zc(struct flow *flow);
void uring__close_zc(struct flow *flow);
/* Send a message with SEND_ZC or SENDMSG_ZC. Each request raises message->pending, and its notification lowers it. */
int uring__send_zc(struct flow *flow, struct message *message);
int uring__reap(struct flow *flow, bool drain);

#endif
