/* SPDX-License-Identifier: GPL-2.0 */
/* counter_trial.h - whether events that opened count, and which of them fit on the PMU together. */
#ifndef COLLECTOR_COUNTER_TRIAL_H
#define COLLECTOR_COUNTER_TRIAL_H

#include "cpu_event.h"

/* Running less than this part of the time, an event shares its counter with others. */
#define RUNS_ALL_THE_TIME 0.99

/*
 * Lets them count kernel work. Closes those that count nothing; every one gets its reason: why it does not work, or why it
 * counts only a part of the time, now or when it has to share later.
 */
void counter_trial__check(struct cpu_event *events, int count);

#endif
