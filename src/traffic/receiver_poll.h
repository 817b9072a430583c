/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TRAFFIC_RECEIVER_POLL_H
#define TRAFFIC_RECEIVER_POLL_H

#include "receiver_thread.h"

/*
 * One thread reads all connections, as servers with an event loop do: poll() says which have data, and each of
 * these is read until a buffer is full or nothing is left. It sleeps only when none has data:
 * until one has, or (--coalesce) for a time, as a device does that coalesces its interrupts.
 */
int receiver_poll__start(struct receiver_thread *connections, unsigned int count);

#endif
