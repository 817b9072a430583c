/* SPDX-License-Identifier: GPL-2.0 */
/* call_counting.h - which hooks count the calls: two at the socket, or the one where calls return. */
#ifndef COLLECTOR_CALL_COUNTING_H
#define COLLECTOR_CALL_COUNTING_H

#include <stdbool.h>

#include "attach/tracepoints.h"

/*
 * Counting at the socket pays where sys_exit may then be away most of the time: while it is attached, every system call of
 * the machine is slower. `wanted` or not, it takes both of the hooks; when they are not used, they say why: the
 * timed calls alone are counted, or all where they return.
 */
void call_counting__choose(struct hook hooks[HOOK_CNT], bool wanted, bool timed_only);
bool call_counting__at_socket(const struct hook hooks[HOOK_CNT]);

#endif
