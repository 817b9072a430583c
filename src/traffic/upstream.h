/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TRAFFIC_UPSTREAM_H
#define TRAFFIC_UPSTREAM_H

#include "flow.h"
#include "options.h"

/*
 * Who sends to a relay: a process for each connection, over TCP on lo, without an end. None of its work is the relay's, which is
 * a process of its own. It ends with the relay's thread, whatever that ended by, or when the connection does.
 */
/* In the thread that relays; what is sent are the messages of the ring, in turn. Makes flow->upstream and flow->feeder. */
int upstream__open(struct flow *flow, struct ring *ring, const struct options *options);
void upstream__close(struct flow *flow);

/* `got` bytes came from there, by `call`: 0; or none did: 0 when it may be asked again, else -errno with the reason. */
int upstream__took(struct flow *flow, const char *call, ssize_t got);

#endif
