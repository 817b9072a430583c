/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TRAFFIC_SPLICE_H
#define TRAFFIC_SPLICE_H

#include "flow.h"

/*
 * A pipe for each connection, through which pages go into the socket by reference: those of a file or of
 * another socket (splice(2)), or of the program's own memory (vmsplice(2)). It is as large as a message where the kernel allows it (pipe(7), pipe-max-size and
 * pipe-user-pages-soft), else a message goes through it in parts. It is empty between two messages.
 */
/* `slots`: pages or parts of pages that a message consists of, at most. Makes flow->state. */
int splice__open(struct flow *flow, size_t slots);
void splice__close(struct flow *flow);

/* The message that begins there in flow->file. */
int splice__send_file(struct flow *flow, off_t from);
int splice__send_memory(struct flow *flow, struct message *message);
/* As many bytes as a message has, from flow->upstream. */
int splice__relay(struct flow *flow);

#endif
