/* SPDX-License-Identifier: GPL-2.0 */
/* on_sight.h - a dear hook that comes only when there is something to count: what is spliced out of a socket, or mapped. */
#ifndef COPYSCOPE_ON_SIGHT_H
#define COPYSCOPE_ON_SIGHT_H

#include <stdbool.h>

#include "attach/tracepoints.h"

struct copyscope;
struct on_sight;

/*
 * It is at sys_exit, and while that is attached all system calls of the machine take their slow way. So it comes only after the cheap
 * hook of the row before it, or the timing of calls, has seen such a call; from then on it is there from the beginning of a segment,
 * and the other is not. Whether this hook is not to be attached at once:
 */
bool on_sight__waits(enum hook_id id, const struct hook hooks[HOOK_CNT], const struct copyscope *skel);
/* Attaches it soon after the skeleton's splices_seen is set, and then sets splices_counted. 0 or a negative errno. */
int on_sight__start(struct on_sight **result, enum hook_id id, struct hook hooks[HOOK_CNT], struct copyscope *skel);
/* Leaves attached what is; 0, or why it could not be. NULL is fine. */
int on_sight__stop(struct on_sight *on_sight);

#endif
