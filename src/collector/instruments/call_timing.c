// SPDX-License-Identifier: GPL-2.0
#include "call_timing.h"

#include <bpf/libbpf.h>
#include <copyscope.skel.h>

#include "call_counting.h"
#include "duty_cycle.h"

unsigned int call_timing__share(unsigned int one_in, bool watching)
{
	return watching ? 1 : duty_cycle__share(one_in);
}

bool call_timing__comes_and_goes(enum hook_id id, const struct hook hooks[HOOK_CNT], const struct copyscope *skel,
				 unsigned int share)
{
	if (hook_rows[id].need != TIMED || share == 1)
		return false;
	return id != HOOK_syscall_exit || skel->rodata->count_timed_only || call_counting__at_socket(hooks);
}

int call_timing__start(struct duty_cycle **cycle, struct hook hooks[HOOK_CNT], struct copyscope *skel, unsigned int share)
{
	struct duty_hooks parts = { .open = &skel->bss->open_clocks, .begun = &skel->bss->clocks_begun };

	for (int i = 0; i < HOOK_CNT && parts.count < DUTY_HOOKS_MAX; i++) {
		if (!call_timing__comes_and_goes(i, hooks, skel, share))
			continue;
		parts.programs[parts.count] = tracepoints__program(skel, i);
		parts.links[parts.count++] = &hooks[i].link;
	}
	return parts.count ? duty_cycle__start(cycle, &parts, share) : 0;
}
