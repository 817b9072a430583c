/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * on_sight.h - attaches an expensive hook only when it has something to count: bytes that are spliced or mapped out
 * of a socket.
 */
#ifndef COPYSCOPE_ON_SIGHT_H
#define COPYSCOPE_ON_SIGHT_H

#include <stdbool.h>

#include "attach/tracepoints.h"

struct copyscope;
struct on_sight;

/*
 * Return true if this hook is attached only when it has something to count. This hook is on sys_exit, which sends every
 * system call of the machine through the slow path. The cheap hook of the row before it sees the first such call, and
 * sets splices_seen.
 */
bool on_sight__waits(enum hook_id id, const struct hook hooks[HOOK_CNT], const struct copyscope *skel);
/*
 * Start a thread that attaches the hook soon after the skeleton's splices_seen is set, and then sets splices_counted. If
 * the hook is refused, its state and reason say so. Return 0 or -errno.
 */
int on_sight__start(struct on_sight **result, struct hook *hook, struct copyscope *skel);
/* Stop the thread and leave the hook attached. NULL is allowed. */
void on_sight__stop(struct on_sight *on_sight);

#endif
