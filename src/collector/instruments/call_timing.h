/* SPDX-License-Identifier: GPL-2.0 */
/* call_timing.h - when the hooks that time calls are attached. */
#ifndef COPYSCOPE_CALL_TIMING_H
#define COPYSCOPE_CALL_TIMING_H

#include <stdbool.h>

#include "attach/tracepoints.h"

struct duty_cycle;

/*
 * They are there for one part in so many of a segment, where one call in `one_in` is timed. Of a watched program for all of it: what
 * counts is at sys_exit there in any case, and such segments are as short as the program is busy (plan/schedule.py).
 */
unsigned int call_timing__share(unsigned int one_in, bool watching);
/* Attached for a part of the segment only. */
bool call_timing__comes_and_goes(enum hook_id id, const struct hook hooks[HOOK_CNT], const struct copyscope *skel,
				 unsigned int share);
/* Begins to attach those that do, if any; 0 or a negative errno. */
int call_timing__start(struct duty_cycle **cycle, struct hook hooks[HOOK_CNT], struct copyscope *skel, unsigned int share);

#endif
