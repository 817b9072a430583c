// SPDX-License-Identifier: GPL-2.0
#include "on_sight.h"

#include <errno.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>

#include <bpf/libbpf.h>
#include <copyscope.skel.h>

/* What is spliced meanwhile is counted as lost; to look fifty times a second takes a thousandth of a CPU. */
#define LOOK_NS 20000000L
#define NSEC_PER_SEC 1000000000L

struct on_sight {
	struct hook *hook;
	struct copyscope *skel;
	pthread_t thread;
	pthread_mutex_t mutex;
	pthread_cond_t stopping;
	bool stop;
	int err;
};

/* False when told to stop. The mutex is held. */
static bool rest(struct on_sight *on_sight)
{
	struct timespec until;

	clock_gettime(CLOCK_MONOTONIC, &until);
	until.tv_nsec += LOOK_NS;
	if (until.tv_nsec >= NSEC_PER_SEC) {
		until.tv_nsec -= NSEC_PER_SEC;
		until.tv_sec++;
	}
	while (!on_sight->stop)
		if (pthread_cond_timedwait(&on_sight->stopping, &on_sight->mutex, &until) == ETIMEDOUT)
			return true;
	return false;
}

static void *run(void *argument)
{
	struct on_sight *on_sight = argument;
	const volatile __u32 *seen = &on_sight->skel->bss->splices_seen;

	pthread_mutex_lock(&on_sight->mutex);
	while (!*seen && rest(on_sight))
		;
	if (*seen) {
		struct bpf_program *program = tracepoints__program(on_sight->skel, HOOK_volume_spliced);

		on_sight->hook->link = bpf_program__attach(program);
		on_sight->err = on_sight->hook->link ? 0 : -errno;
		on_sight->skel->bss->splices_counted = !on_sight->err;
		if (!on_sight->err)
			on_sight->hook->state = STATE_ATTACHED;
	}
	pthread_mutex_unlock(&on_sight->mutex);
	return NULL;
}

bool on_sight__waits(enum hook_id id, const struct hook hooks[HOOK_CNT], const struct copyscope *skel)
{
	/* Where calls are timed in the same segment, sys_exit is slow already. */
	bool known = skel->bss->splices_seen || hooks[HOOK_syscall_exit].link;

	if (id == HOOK_splice_seen)
		return known;
	return id == HOOK_volume_spliced && !known && tracepoints__works(&hooks[HOOK_splice_seen]);
}

int on_sight__start(struct on_sight **result, enum hook_id id, struct hook hooks[HOOK_CNT], struct copyscope *skel)
{
	struct on_sight *on_sight;
	pthread_condattr_t attr;
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
	pthread_mutex_init(&on_sight->mutex, NULL);
	pthread_condattr_init(&attr);
	pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
	pthread_cond_init(&on_sight->stopping, &attr);
	pthread_condattr_destroy(&attr);
	err = -pthread_create(&on_sight->thread, NULL, run, on_sight);
	if (err) {
		pthread_cond_destroy(&on_sight->stopping);
		free(on_sight);
		return err;
	}
	*result = on_sight;
	return 0;
}

int on_sight__stop(struct on_sight *on_sight)
{
	int err;

	if (!on_sight)
		return 0;
	pthread_mutex_lock(&on_sight->mutex);
	on_sight->stop = true;
	pthread_cond_signal(&on_sight->stopping);
	pthread_mutex_unlock(&on_sight->mutex);
	pthread_join(on_sight->thread, NULL);
	err = on_sight->err;
	pthread_cond_destroy(&on_sight->stopping);
	free(on_sight);
	return err;
}
