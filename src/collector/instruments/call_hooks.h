/* SPDX-License-Identifier: GPL-2.0 */
/* call_hooks.h - which hooks count the calls: two at the socket, or the one where calls return; when those are attached that time them. */
#ifndef COLLECTOR_CALL_HOOKS_H
#define COLLECTOR_CALL_HOOKS_H

#include <stdbool.h>

#include "attach/tracepoints.h"

struct duty_cycle;

/*
 * Counting at the socket pays where sys_exit may then be away most of the time: while it is attached, every system call of
 * the machine is slower. `wanted` or not, it takes both of the hooks; when they are not used, they say why: the
 * timed calls alone are counted, or all where they return.
 */
void call_hooks__choose_counters(struct hook hooks[HOOK_CNT], bool wanted, bool timed_only);
bool call_hooks__at_socket(const struct hook hooks[HOOK_CNT]);
/*
 * Those that time calls are there for one part in so many of a segment, where one call in `one_in` is timed. Of a watched program for
 * all of it: what counts is at sys_exit there in any case, and such segments are as short as the program is busy (plan/schedule.py).
 */
unsigned int call_hooks__share(unsigned int one_in, bool watching);
/* Attached for a part of the segment only. */
bool call_hooks__comes_and_goes(enum hook_id id, const struct hook hooks[HOOK_CNT], const struct copyscope *skel, unsigned int share);
/* Begins to attach those that do, if any; 0 or a negative errno. */
int call_hooks__start(struct duty_cycle **cycle, struct hook hooks[HOOK_CNT], struct copyscope *skel, unsigned int share);

#endif
