/* SPDX-License-Identifier: GPL-2.0 */
/*
 * duty_cycle.h - the dear hooks of an instrument, attached for a part of the time, at random.
 *
 * A hook that is attached costs 20 to 100 ns at each event, whatever its program decides (docs/dev/notes.md, "Cost per hook").
 * To look at one call in N only therefore saves little; to be away most of the time does.
 */
#ifndef COPYSCOPE_DUTY_CYCLE_H
#define COPYSCOPE_DUTY_CYCLE_H

#include <linux/types.h>

#define DUTY_HOOKS_MAX 8

struct bpf_link;
struct bpf_program;

/* Programs that can be attached, and are not. The first begins what the others follow to its end: it goes first. */
struct duty_hooks {
	int count;
	struct bpf_program *programs[DUTY_HOOKS_MAX];
	struct bpf_link **links[DUTY_HOOKS_MAX];
	/* What was begun and has not ended. */
	const volatile __u32 *open;
	/* What was ever begun: a duty cycle that has had enough of it closes. */
	const volatile __u32 *begun;
};

struct duty_cycle;

/* Of one event in `one_in`: duty cycles take one part in so many of the time. */
unsigned int duty_cycle__share(unsigned int one_in);

/* From here on the links come and go by themselves, until they are stopped. 0 or a negative errno. */
int duty_cycle__start(struct duty_cycle **cycle, const struct duty_hooks *hooks, unsigned int share);
/* Leaves those attached that are; 0, or the first thing that failed. NULL is fine. */
int duty_cycle__stop(struct duty_cycle *cycle);

#endif
