// SPDX-License-Identifier: GPL-2.0
#include "call_hooks.h"

#include <stdio.h>

#include <bpf/libbpf.h>
#include <copyscope.skel.h>

#include "duty_cycle.h"

static const enum hook_id counters[] = { HOOK_call_sent, HOOK_call_received };
#define COUNTERS (sizeof(counters) / sizeof(*counters))

bool call_hooks__at_socket(const struct hook hooks[HOOK_CNT])
{
	for (size_t i = 0; i < COUNTERS; i++)
		if (!tracepoints__works(&hooks[counters[i]]))
			return false;
	return true;
}

void call_hooks__choose_counters(struct hook hooks[HOOK_CNT], bool wanted, bool timed_only)
{
	const char *why = timed_only ? "the program says how many calls it makes" : "calls are counted where they return";

	wanted &= !timed_only;
	if (wanted && call_hooks__at_socket(hooks))
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

unsigned int call_hooks__share(unsigned int one_in, bool watching)
{
	return watching ? 1 : duty_cycle__share(one_in);
}

bool call_hooks__comes_and_goes(enum hook_id id, const struct hook hooks[HOOK_CNT], const struct copyscope *skel,
				 unsigned int share)
{
	if (hook_rows[id].need != TIMED || share == 1)
		return false;
	return id != HOOK_syscall_exit || skel->rodata->count_timed_only || call_hooks__at_socket(hooks);
}

int call_hooks__start(struct duty_cycle **cycle, struct hook hooks[HOOK_CNT], struct copyscope *skel, unsigned int share)
{
	struct duty_hooks parts = { .open = &skel->bss->open_clocks, .begun = &skel->bss->clocks_begun };

	for (int i = 0; i < HOOK_CNT && parts.count < DUTY_HOOKS_MAX; i++) {
		if (!call_hooks__comes_and_goes(i, hooks, skel, share))
			continue;
		parts.programs[parts.count] = tracepoints__program(skel, i);
		parts.links[parts.count++] = &hooks[i].link;
	}
	return parts.count ? duty_cycle__start(cycle, &parts, share) : 0;
}
