// SPDX-License-Identifier: GPL-2.0-only
#include "on_sight.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/libbpf.h>
#include <copyscope.skel.h>

#include "instruments/resting_thread.h"

/*
 * Interval between two polls. Calls that splice before the hook is attached are counted as lost. Polling a hundred
 * times a second takes a thousandth of a CPU.
 */
#define POLL_INTERVAL_NS 10000000ULL

struct on_sight {
	struct hook *hook;
	struct copyscope *skel;
	struct resting_thread thread;
};

static void attach_on_sight(void *argument)
{
	struct on_sight *on_sight = argument;
	struct hook *hook = on_sight->hook;
	const volatile __u32 *splices_seen = &on_sight->skel->bss->splices_seen;
	struct bpf_link *link;

	while (!*splices_seen && resting_thread__rest(&on_sight->thread, POLL_INTERVAL_NS))
		;
	if (!*splices_seen)
		return;
	link = bpf_program__attach(tracepoints__program(on_sight->skel, HOOK_volume_spliced));
	if (!link)
		snprintf(hook->reason, sizeof(hook->reason), "attach: %s", strerror(errno));
	/* Other threads read these two variables. */
	__atomic_store_n(&hook->link, link, __ATOMIC_RELEASE);
	__atomic_store_n(&hook->state, link ? STATE_ATTACHED : STATE_REFUSED, __ATOMIC_RELEASE);
	on_sight->skel->bss->splices_counted = link != NULL;
}

bool on_sight__waits(enum hook_id id, const struct hook hooks[HOOK_CNT], const struct copyscope *skel)
{
	return id == HOOK_volume_spliced && !skel->bss->splices_seen && tracepoints__works(&hooks[HOOK_splice_seen]);
}

int on_sight__start(struct on_sight **result, struct hook *hook, struct copyscope *skel)
{
	struct on_sight *on_sight;
	int err;

	on_sight = calloc(1, sizeof(*on_sight));
	if (!on_sight)
		return -ENOMEM;
	on_sight->hook = hook;
	on_sight->skel = skel;
	err = resting_thread__start(&on_sight->thread, attach_on_sight, on_sight);
	if (err)
		free(on_sight);
	else
		*result = on_sight;
	return err;
}

void on_sight__stop(struct on_sight *on_sight)
{
	if (!on_sight)
		return;
	resting_thread__stop(&on_sight->thread);
	free(on_sight);
}
