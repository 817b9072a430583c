/* SPDX-License-Identifier: GPL-2.0 */
/* timer_rate.h - how often this machine can really be interrupted by a timer. */
#ifndef COLLECTOR_TIMER_RATE_H
#define COLLECTOR_TIMER_RATE_H

#include <linux/types.h>

struct bpf_program;

/*
 * Doubles a modest rate, up to wanted_hz, as long as nearly all samples of a few milliseconds arrive on one CPU, in the best of some
 * trials. 10 kHz is no trouble for a processor, and too much for one that is emulated.
 * program: counts in samples_of_side, by side.
 */
unsigned int timer_rate__find(struct bpf_program *program, const volatile __u64 *samples_of_side, unsigned int wanted_hz);

/* One trial: the samples that arrived, as a share of those that were due; negative when the timer cannot be opened. */
typedef double timer_trial(void *context, unsigned int hz);
/* The same by any trial. */
unsigned int timer_rate__highest(timer_trial *try, void *context, unsigned int wanted_hz);

#endif
