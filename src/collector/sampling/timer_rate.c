// SPDX-License-Identifier: GPL-2.0
#include "timer_rate.h"

#include <stdbool.h>
#include <time.h>

#include "abi.h"
#include "events.h"
#include "kernel/clock.h"

#define TRIAL_NS 10000000L
#define TRIALS 8
#define NEARLY_ALL 0.9
#define SAFE_HZ 1250

struct trial {
	struct bpf_program *program;
	const volatile __u64 *samples_of_side;
};

/* Counted whichever task was interrupted: a watched program may have this CPU. */
static __u64 samples_so_far(const struct trial *trial)
{
	__u64 samples = 0;

	for (int side = 0; side <= SIDE_OTHER; side++)
		samples += trial->samples_of_side[side];
	return samples;
}

static double arrived(void *context, unsigned int hz)
{
	const struct timespec length = { .tv_nsec = TRIAL_NS };
	const struct trial *trial = context;
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = NSEC_PER_SEC / hz,
	};
	struct events timer = {};
	uint64_t began_ns, took_ns;
	__u64 before = samples_so_far(trial);
	int err;

	err = events__add(&timer, attr, trial->program, -1, 0);
	if (!err) {
		began_ns = now_ns();
		events__switch(&timer, PERF_EVENT_IOC_ENABLE);
		nanosleep(&length, NULL);
		events__switch(&timer, PERF_EVENT_IOC_DISABLE);
		took_ns = now_ns() - began_ns;
	}
	events__close(&timer);
	return err ? -1 : (double)(samples_so_far(trial) - before) * NSEC_PER_SEC / ((double)took_ns * hz);
}

/* A CPU that a hypervisor takes away loses samples that it could have taken. Nothing makes more arrive, so the best trial counts. */
static bool works(timer_trial *try, void *context, unsigned int hz)
{
	for (int i = 0; i < TRIALS; i++) {
		double share = try(context, hz);

		if (share >= NEARLY_ALL)
			return true;
		if (share < 0)
			return false;
	}
	return false;
}

unsigned int timer_rate__highest(timer_trial *try, void *context, unsigned int wanted_hz)
{
	unsigned int hz = SAFE_HZ < wanted_hz ? SAFE_HZ : wanted_hz;

	/* Upwards: a timer that is faster than its own interrupt would never let go of the CPU. */
	while (2 * hz <= wanted_hz && works(try, context, 2 * hz))
		hz *= 2;
	return hz;
}

unsigned int timer_rate__find(struct bpf_program *program, const volatile __u64 *samples_of_side, unsigned int wanted_hz)
{
	struct trial trial = { program, samples_of_side };

	return timer_rate__highest(arrived, &trial, wanted_hz);
}
