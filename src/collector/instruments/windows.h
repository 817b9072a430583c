/* SPDX-License-Identifier: GPL-2.0 */
/*
 * windows.h - the dear hooks of an instrument, attached for a part of the time, at random.
 *
 * A hook that is attached costs 20 to 100 ns at each event, whatever its program decides (docs/dev/notes.md, "Cost per hook").
 * To look at one call in N only therefore saves little; to be away most of the time does.
 */
#ifndef COPYSCOPE_WINDOWS_H
#define COPYSCOPE_WINDOWS_H

#include <linux/types.h>

#define WINDOWS_HOOKS_MAX 8

struct bpf_link;
struct bpf_program;

/* Programs that can be attached, and are not. The first begins what the others follow to its end: it goes first. */
struct windows_hooks {
	int count;
	struct bpf_program *programs[WINDOWS_HOOKS_MAX];
	struct bpf_link **links[WINDOWS_HOOKS_MAX];
	/* What was begun and has not ended. */
	const volatile __u32 *open;
	/* What was ever begun: a window that has had enough of it closes. */
	const volatile __u32 *begun;
};

struct windows;

/* Of one event in `one_in`: the windows are open for one part in so many of the time. */
unsigned int windows__share(unsigned int one_in);

/* From here on the links come and go by themselves, until they are stopped. 0 or a negative errno. */
int windows__start(struct windows **windows, const struct windows_hooks *hooks, unsigned int share);
/* Leaves those attached that are; 0, or the first thing that failed. NULL is fine. */
int windows__stop(struct windows *windows);

#endif
