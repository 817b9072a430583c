/* SPDX-License-Identifier: GPL-2.0 */
/* shape.h - how a watched program hands over what it sends, so far. */
#ifndef COLLECTOR_SHAPE_H
#define COLLECTOR_SHAPE_H

#include <jansson.h>

struct copyscope;

/* Before the programs are loaded. */
void shape__configure(struct copyscope *skel);
/* [{protocol, syscall, messages, ...}] of the calls that happened while the instrument was attached. */
json_t *shape__json(const struct copyscope *skel);

#endif
