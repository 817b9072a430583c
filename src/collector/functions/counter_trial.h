/* SPDX-License-Identifier: GPL-2.0-only */
/* counter_trial.h - tests if opened events count, and which events fit on the PMU together. */
#ifndef COLLECTOR_COUNTER_TRIAL_H
#define COLLECTOR_COUNTER_TRIAL_H

#include "cpu_event.h"

/* An event that runs for a smaller fraction of the time shares its counter with other events. */
#define RUNS_ALL_THE_TIME 0.99

/*
 * Let the events count kernel work and close those that count nothing. Each event gets a reason: why it does not work,
 * why it counts only part of the time, or the reason to report if it has to share a counter later.
 */
void counter_trial__check(struct cpu_event *events, int count);

#endif
