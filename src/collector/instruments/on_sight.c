// SPDX-License-Identifier: GPL-2.0
#include "on_sight.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include <bpf/libbpf.h>
#include <copyscope.skel.h>

#include "kernel/clock.h"
#include "instruments/resting_thread.h"

/* What is spliced meanwhile is counted as lost; to look fifty times a second takes a thousandth of a CPU. */
#define LOOK_NS 20000000ULL

struct on_sight {
	struct hook *hook;
	struct copyscope *skel;
	struct resting_thread thread;
	int err;
};

static void attach_on_sight(void *argument)
{
	struct on_sight *on_sight = argument;
	const volatile __u32 *seen = &on_sight->skel->bss->splices_seen;

	while (!*seen && resting_thread__rest(&on_sight->thread, LOOK_NS))
		;
	if (*seen) {
		struct bpf_program *program = tracepoints__program(on_sight->skel, HOOK_volume_spliced);
		struct bpf_link *link = bpf_program__attach(program);

		on_sight->err = link ? 0 : -errno;
		on_sight->hook->since_ns = now_ns();
		/* Others ask meanwhile whether it is there. */
		__atomic_store_n(&on_sight->hook->link, link, __ATOMIC_RELEASE);
		on_sight->skel->bss->splices_counted = !on_sight->err;
		if (!on_sight->err)
			on_sight->hook->state = STATE_ATTACHED;
	}
}

bool on_sight__waits(enum hook_id id, const struct hook hooks[HOOK_CNT], const struct copyscope *skel)
{
	bool known;

	if (id != HOOK_splice_seen && id != HOOK_volume_spliced)
		return false;
	/* Where calls are timed in the same segment, sys_exit is slow already. */
	known = skel->bss->splices_seen || hooks[HOOK_syscall_exit].link;
	return id == HOOK_splice_seen ? known : !known && tracepoints__works(&hooks[HOOK_splice_seen]);
}

int on_sight__start(struct on_sight **result, enum hook_id id, struct hook hooks[HOOK_CNT], struct copyscope *skel)
{
	struct on_sight *on_sight;
	int err;

	/* What was to see it has. */
	if (id == HOOK_splice_seen)
		return 0;
	on_sight = calloc(1, sizeof(*on_sight));
	if (!on_sight)
		return -ENOMEM;
	on_sight->hook = &hooks[HOOK_volume_spliced];
	on_sight->skel = skel;
	skel->bss->splices_counted = 0;
	err = resting_thread__start(&on_sight->thread, attach_on_sight, on_sight);
	if (err)
		free(on_sight);
	else
		*result = on_sight;
	return err;
}

int on_sight__stop(struct on_sight *on_sight)
{
	int err;

	if (!on_sight)
		return 0;
	resting_thread__stop(&on_sight->thread);
	err = on_sight->err;
	free(on_sight);
	return err;
}
