// SPDX-License-Identifier: GPL-2.0
#include "cpu_timers.h"

#include <errno.h>

#include <bpf/libbpf.h>

int cpu_timers__open(struct events *timers, struct bpf_program *program, __u64 period_ns)
{
	struct perf_event_attr attr = {
		.type = PERF_TYPE_SOFTWARE,
		.config = PERF_COUNT_SW_CPU_CLOCK,
		.sample_period = period_ns,
	};
	int cpus = libbpf_num_possible_cpus();
	int err = 0;

	for (int cpu = 0; cpu < cpus && !err; cpu++) {
		err = events__add(timers, attr, program, -1, cpu);
		if (err == -ENODEV) /* an offline CPU */
			err = 0;
	}
	return err;
}
