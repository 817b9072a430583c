// SPDX-License-Identifier: GPL-2.0
#include "timer_rate.h"

#include <bpf/libbpf.h>
#include <sampling.skel.h>

#include "abi.h"
#include "events.h"
#include "kernel/clock.h"

#define TRIAL_NS 10000000L
#define SAFE_HZ 1250

/* Counted whichever task was interrupted: a watched program may have this CPU. */
static __u64 samples_so_far(const struct sampling *skel)
{
	__u64 samples = 0;

	for (int side = 0; side <= SIDE_OTHER; side++)
		samples += *(const volatile __u64 *)&skel->bss->samples_of_side[side];
	return samples;
}

/* Samples that arrived, as a share of those that were due; negative when the timer cannot be opened. */
static double arrived(struct sampling *skel, unsigned int hz)
{
	const struct timespec trial = { .tv_nsec = TRIAL_NS };
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = NSEC_PER_SEC / hz,
	};
	struct events timer = {};
	uint64_t began_ns, took_ns;
	__u64 before = samples_so_far(skel);
	int err;

	err = events__add(&timer, attr, skel->progs.on_cpu_clock, -1, 0);
	if (!err) {
		began_ns = now_ns();
		events__switch(&timer, PERF_EVENT_IOC_ENABLE);
		nanosleep(&trial, NULL);
		events__switch(&timer, PERF_EVENT_IOC_DISABLE);
		took_ns = now_ns() - began_ns;
	}
	events__close(&timer);
	return err ? -1 : (double)(samples_so_far(skel) - before) * NSEC_PER_SEC / ((double)took_ns * hz);
}

unsigned int timer_rate__find(struct sampling *skel, unsigned int wanted_hz)
{
	unsigned int hz = SAFE_HZ < wanted_hz ? SAFE_HZ : wanted_hz;

	/* Upwards: a timer that is faster than its own interrupt would never let go of the CPU. */
	while (2 * hz <= wanted_hz && arrived(skel, 2 * hz) >= 0.9)
		hz *= 2;
	return hz;
}
