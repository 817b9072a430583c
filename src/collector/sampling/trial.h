/* SPDX-License-Identifier: GPL-2.0 */
/* trial.h - whether events interrupt: a PMU of a virtual machine can open them, count, and never say so. */
#ifndef COLLECTOR_TRIAL_H
#define COLLECTOR_TRIAL_H

#include <stdbool.h>

#include <linux/types.h>

struct events;

/* Works for at most 10 ms of CPU time, with the events on, until their program has added to `interrupts`. */
bool trial__interrupts(const struct events *events, const volatile __u64 *interrupts);

#endif
