// SPDX-License-Identifier: GPL-2.0
#include "duty_cycle.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include <bpf/libbpf.h>

#include "instruments/resting_thread.h"

/*
 * Opening and closing take 0.5 to 0.9 ms of CPU time each, while the text of the kernel is patched on all CPUs: about a
 * percent of one CPU at one duty cycle in this time, on average, however long it is open.
 */
#define PERIOD_NS 160000000ULL
/* Of a period: a duty cycle is 10 ms at least. Its two switches then cost about as much as being open does. */
#define SHARE_MAX 16
/* A short segment has a duty cycle, too: the first comes soon, but not at once: the send queue is empty then. */
#define FIRST_NS 20000000ULL
#define LOOK_NS 1000000ULL
/* So many events are enough for a duty cycle; of a busy program that takes no 10 ms. The next one may then come later. */
#define ENOUGH 256
#define PERIODS_AFTER_ENOUGH 3

struct duty_cycle {
	struct duty_hooks hooks;
	unsigned int share;
	unsigned int seed;
	/* What had begun when it opened. */
	__u32 begun;
	struct resting_thread thread;
	int err;
};

/* Uniform between 0 and twice the mean, so that duty cycles keep no step with anything. */
static uint64_t random_ns(struct duty_cycle *cycle, uint64_t mean_ns)
{
	return 2.0 * mean_ns * rand_r(&cycle->seed) / RAND_MAX;
}

static int drop(struct duty_cycle *cycle, int i)
{
	struct bpf_link **link = cycle->hooks.links[i];
	int err = bpf_link__destroy(*link);

	*link = NULL;
	return err;
}

/* What began in the duty cycle also ends in it, however long it takes: or long calls would be missing. */
static bool close_hooks(struct duty_cycle *cycle)
{
	cycle->err = drop(cycle, 0);
	do {
		if (cycle->err || !resting_thread__rest(&cycle->thread, LOOK_NS))
			return false;
	} while (*cycle->hooks.open);
	for (int i = 1; i < cycle->hooks.count && !cycle->err; i++)
		cycle->err = drop(cycle, i);
	return !cycle->err;
}

/* The first program is attached last: a call that it sees begin must be followed from its beginning. */
static bool open_hooks(struct duty_cycle *cycle)
{
	cycle->begun = *cycle->hooks.begun;
	for (int i = cycle->hooks.count - 1; i >= 0; i--) {
		*cycle->hooks.links[i] = bpf_program__attach(cycle->hooks.programs[i]);
		if (!*cycle->hooks.links[i]) {
			cycle->err = -errno;
			return false;
		}
	}
	return true;
}

static bool has_enough(const struct duty_cycle *cycle)
{
	return *cycle->hooks.begun - cycle->begun >= ENOUGH;
}

/* False when told to stop. */
static bool stay_open(struct duty_cycle *cycle, uint64_t open_ns)
{
	uint64_t until_ns = now_ns() + open_ns;

	while (!has_enough(cycle) && now_ns() < until_ns)
		if (!resting_thread__rest(&cycle->thread, LOOK_NS))
			return false;
	return true;
}

static uint64_t until_next(struct duty_cycle *cycle, uint64_t open_ns)
{
	return random_ns(cycle, (has_enough(cycle) ? PERIODS_AFTER_ENOUGH : 1) * PERIOD_NS - open_ns);
}

static void come_and_go(void *argument)
{
	struct duty_cycle *cycle = argument;
	uint64_t open_ns = PERIOD_NS / cycle->share;
	uint64_t rest_ns = random_ns(cycle, FIRST_NS / 2);

	while (resting_thread__rest(&cycle->thread, rest_ns) && open_hooks(cycle) && stay_open(cycle, open_ns) &&
	       close_hooks(cycle))
		rest_ns = until_next(cycle, open_ns);
}

unsigned int duty_cycle__share(unsigned int one_in)
{
	return one_in < SHARE_MAX ? one_in : SHARE_MAX;
}

int duty_cycle__start(struct duty_cycle **result, const struct duty_hooks *hooks, unsigned int share)
{
	struct duty_cycle *cycle = calloc(1, sizeof(*cycle));
	int err;

	if (!cycle)
		return -ENOMEM;
	cycle->hooks = *hooks;
	cycle->share = share;
	cycle->seed = now_ns();
	err = resting_thread__start(&cycle->thread, come_and_go, cycle);
	if (err)
		free(cycle);
	else
		*result = cycle;
	return err;
}

int duty_cycle__stop(struct duty_cycle *cycle)
{
	int err;

	if (!cycle)
		return 0;
	resting_thread__stop(&cycle->thread);
	err = cycle->err;
	free(cycle);
	return err;
}
