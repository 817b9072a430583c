/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TRAFFIC_SENDER_LOOP_H
#define TRAFFIC_SENDER_LOOP_H

#include "sender_thread.h"

/*
 * One thread sends on all connections in turn, a message on each, as clients with an event loop do: poll() says
 * which have room. A message that has begun is finished before the next connection has its turn, so what is sent
 * on each is what a thread of its own would send; and where nobody reads, it is waited for from there on.
 */
int sender_loop__start(struct sender_thread *connections, unsigned int count);

#endif
