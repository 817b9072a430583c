/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TRAFFIC_SENDER_LOOP_H
#define TRAFFIC_SENDER_LOOP_H

#include "sender_thread.h"

/*
 * Start one thread that sends on all connections in turn, a message on each connection, as clients with an event loop do. poll()
 * reports the connections with room in the send buffer. A message is sent completely before the next connection has its turn,
 * so each connection carries the same bytes as with a thread for each. If a receiver does not read, all connections wait.
 */
int sender_loop__start(struct sender_thread *connections, unsigned int count);

#endif
