/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TRAFFIC_UPSTREAM_H
#define TRAFFIC_UPSTREAM_H

#include "flow.h"
#include "options.h"

/*
 * Upstream connection of a relay: a process for each connection, the feeder, sends without end over TCP on lo. The feeder is a
 * separate process, so that its CPU time does not count for the relay. The feeder ends with the relay's thread, however that
 * thread ends, or with the connection.
 */
/* Start a feeder that sends the messages of the ring in turn; set flow->upstream, flow->feeder. The relay's thread calls this. */
int upstream__open(struct flow *flow, struct ring *ring, const struct options *options);
void upstream__close(struct flow *flow);

/*
 * Account for a call on the upstream socket that returned `got`. Return 0 if it returned data or may be repeated, else -errno
 * with the reason in flow->failure.
 */
int upstream__account(struct flow *flow, const char *call, ssize_t got);

#endif
