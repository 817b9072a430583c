/* SPDX-License-Identifier: GPL-2.0 */
/* cpu_timers.h - a timer for each CPU, whoever runs there: the program behind them says whom it samples. */
#ifndef COLLECTOR_CPU_TIMERS_H
#define COLLECTOR_CPU_TIMERS_H

#include <linux/types.h>

#include "events.h"

struct bpf_program;

/* Opens them, disarmed; events__switch() arms. Returns 0 or -errno. */
int cpu_timers__open(struct events *timers, struct bpf_program *program, __u64 period_ns);

#endif
