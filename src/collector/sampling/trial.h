/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * trial.h - tests whether events interrupt. On some virtual machines a PMU event opens and counts, but never
 * interrupts.
 */
#ifndef COLLECTOR_TRIAL_H
#define COLLECTOR_TRIAL_H

#include <stdbool.h>

#include <linux/types.h>

struct events;

/* Consume at most 10 ms of CPU time with the events enabled, until their program has added to `interrupts`. */
bool trial__interrupts(const struct events *events, const volatile __u64 *interrupts);

#endif
