// SPDX-License-Identifier: GPL-2.0
#include "call_counting.h"

#include <stdio.h>

static const enum hook_id counters[] = { HOOK_call_sent, HOOK_call_received };
#define COUNTERS (sizeof(counters) / sizeof(*counters))

bool call_counting__at_socket(const struct hook hooks[HOOK_CNT])
{
	for (size_t i = 0; i < COUNTERS; i++)
		if (!tracepoints__works(&hooks[counters[i]]))
			return false;
	return true;
}

void call_counting__choose(struct hook hooks[HOOK_CNT], bool wanted, bool timed_only)
{
	const char *why = timed_only ? "the program says how many calls it makes" : "calls are counted where they return";

	wanted &= !timed_only;
	if (wanted && call_counting__at_socket(hooks))
		return;
	for (size_t i = 0; i < COUNTERS; i++) {
		struct hook *hook = &hooks[counters[i]];

		if (!tracepoints__works(hook))
			continue;
		hook->state = STATE_UNUSED;
		snprintf(hook->reason, sizeof(hook->reason), "%s%s", why,
			 wanted ? ": the other of the two hooks does not work" : "");
	}
}
