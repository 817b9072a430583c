/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TRAFFIC_SPLICE_H
#define TRAFFIC_SPLICE_H

#include "flow.h"

/*
 * A pipe for each connection passes references to pages into the socket: pages of a file or of another socket (splice(2)), or
 * of the program's memory (vmsplice(2)). The pipe holds a whole message if the kernel allows that size (pipe-max-size and
 * pipe-user-pages-soft in pipe(7)); otherwise a message passes through in parts. The pipe is empty between two messages.
 */
/* Create the pipe in flow->state. `slots`: upper limit of the pages and parts of pages of a message. */
int splice__open(struct flow *flow, size_t slots);
void splice__close(struct flow *flow);

/* Send the message at offset `from` of flow->file. */
int splice__send_file(struct flow *flow, off_t from);
int splice__send_memory(struct flow *flow, struct message *message);
/* Forward as many bytes as a message has from flow->upstream. */
int splice__relay(struct flow *flow);

#endif
