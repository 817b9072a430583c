/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TRAFFIC_ZEROCOPY_SOCKET_H
#define TRAFFIC_ZEROCOPY_SOCKET_H

#include "flow.h"

/*
 * MSG_ZEROCOPY on a TCP socket. Kernel side: Documentation/networking/msg_zerocopy.rst.
 *
 * When completions are read: an empty look into the error queue is a system call for nothing, and TCP
 * coalesces completions, so one late look finds many. The queue is read after every quarter of the
 * ring (so the memory is free again well before its turn comes, and a completion time is at most a
 * quarter of a ring of messages too long), when the next message is still in flight, on ENOBUFS, and
 * at every pause. Waiting notifications hold no memlock: the kernel gives the pages back when the
 * data is acknowledged (or copied), not when the notification is read.
 */
int zerocopy_socket__open(struct flow *flow);
void zerocopy_socket__close(struct flow *flow);
/* `pending` is raised per call and lowered by its completion; NULL: nobody waits (a drill). */
int zerocopy_socket__send(struct flow *flow, const struct iovec *fields, uint32_t *pending);
int zerocopy_socket__reap(struct flow *flow, bool drain);

#endif
