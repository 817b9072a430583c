/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TRAFFIC_ZEROCOPY_SOCKET_H
#define TRAFFIC_ZEROCOPY_SOCKET_H

#include "flow.h"

/*
 * MSG_ZEROCOPY on a TCP socket (Documentation/networking/msg_zerocopy.rst).
 *
 * The error queue is read after every quarter of the ring, when the next message is still in flight, after ENOBUFS, and in every
 * pause. More frequent reads would waste system calls, because TCP merges notifications. After a quarter, memory is free long
 * before the next use, and a measured completion time is at most a quarter of a ring too long. Unread notifications hold
 * no locked memory: the kernel unpins the pages when the data are acknowledged or copied.
 */
int zerocopy_socket__open(struct flow *flow);
void zerocopy_socket__close(struct flow *flow);
/* Send a message with MSG_ZEROCOPY. Each call raises message->pending, and its notification lowers it. */
int zerocopy_socket__send(struct flow *flow, struct message *message);
int zerocopy_socket__reap(struct flow *flow, bool drain);

#endif
