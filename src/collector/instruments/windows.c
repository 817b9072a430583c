// SPDX-License-Identifier: GPL-2.0
#include "windows.h"

#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#include <bpf/libbpf.h>

#include "sampling/resting_thread.h"

/*
 * Opening and closing take 0.5 to 0.9 ms of CPU time each, while the text of the kernel is patched on all CPUs: about a
 * percent of one CPU at one window in this time, on average, however long it is open.
 */
#define PERIOD_NS 160000000ULL
/* Of a period: a window is 10 ms at least. Its two switches then cost about as much as being open does. */
#define SHARE_MAX 16
/* A short segment has a window, too: the first comes soon, but not at once: the send queue is empty then. */
#define FIRST_NS 20000000ULL
#define LOOK_NS 1000000ULL
/* So many events are enough for a window; of a busy program that takes no 10 ms. The next one may then come later. */
#define ENOUGH 256
#define PERIODS_AFTER_ENOUGH 3

struct windows {
	struct windows_hooks hooks;
	unsigned int share;
	unsigned int seed;
	/* What had begun when the window opened. */
	__u32 begun;
	struct resting_thread thread;
	int err;
};

/* Uniform between 0 and twice the mean, so that windows keep no step with anything. */
static uint64_t random_ns(struct windows *windows, uint64_t mean_ns)
{
	return 2.0 * mean_ns * rand_r(&windows->seed) / RAND_MAX;
}

static int drop(struct windows *windows, int i)
{
	struct bpf_link **link = windows->hooks.links[i];
	int err = bpf_link__destroy(*link);

	*link = NULL;
	return err;
}

/* What began in the window also ends in it, however long it takes: or long calls would be missing. */
static bool close_window(struct windows *windows)
{
	windows->err = drop(windows, 0);
	do {
		if (windows->err || !resting_thread__rest(&windows->thread, LOOK_NS))
			return false;
	} while (*windows->hooks.open);
	for (int i = 1; i < windows->hooks.count && !windows->err; i++)
		windows->err = drop(windows, i);
	return !windows->err;
}

/* The first comes last: whoever begins must be followed from the beginning. */
static bool open_window(struct windows *windows)
{
	windows->begun = *windows->hooks.begun;
	for (int i = windows->hooks.count - 1; i >= 0; i--) {
		*windows->hooks.links[i] = bpf_program__attach(windows->hooks.programs[i]);
		if (!*windows->hooks.links[i]) {
			windows->err = -errno;
			return false;
		}
	}
	return true;
}

static bool has_enough(const struct windows *windows)
{
	return *windows->hooks.begun - windows->begun >= ENOUGH;
}

/* False when told to stop. */
static bool stay_open(struct windows *windows, uint64_t window_ns)
{
	uint64_t until_ns = now_ns() + window_ns;

	while (!has_enough(windows) && now_ns() < until_ns)
		if (!resting_thread__rest(&windows->thread, LOOK_NS))
			return false;
	return true;
}

static uint64_t until_next(struct windows *windows, uint64_t window_ns)
{
	return random_ns(windows, (has_enough(windows) ? PERIODS_AFTER_ENOUGH : 1) * PERIOD_NS - window_ns);
}

static void come_and_go(void *argument)
{
	struct windows *windows = argument;
	uint64_t window_ns = PERIOD_NS / windows->share;
	uint64_t rest_ns = random_ns(windows, FIRST_NS / 2);

	while (resting_thread__rest(&windows->thread, rest_ns) && open_window(windows) && stay_open(windows, window_ns) &&
	       close_window(windows))
		rest_ns = until_next(windows, window_ns);
}

unsigned int windows__share(unsigned int one_in)
{
	return one_in < SHARE_MAX ? one_in : SHARE_MAX;
}

int windows__start(struct windows **result, const struct windows_hooks *hooks, unsigned int share)
{
	struct windows *windows = calloc(1, sizeof(*windows));
	int err;

	if (!windows)
		return -ENOMEM;
	windows->hooks = *hooks;
	windows->share = share;
	windows->seed = now_ns();
	err = resting_thread__start(&windows->thread, come_and_go, windows);
	if (err)
		free(windows);
	else
		*result = windows;
	return err;
}

int windows__stop(struct windows *windows)
{
	int err;

	if (!windows)
		return 0;
	resting_thread__stop(&windows->thread);
	err = windows->err;
	free(windows);
	return err;
}
