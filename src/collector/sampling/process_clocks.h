/* SPDX-License-Identifier: GPL-2.0 */
/* process_clocks.h - CPU time of watched processes between two moments. */
#ifndef COLLECTOR_PROCESS_CLOCKS_H
#define COLLECTOR_PROCESS_CLOCKS_H

#include <stdint.h>

#include "report/watched.h"

struct process_clocks {
	/* In the order of the watched processes; 0: its clock could not be read. */
	uint64_t began_ns[WATCHED_MAX];
};

void process_clocks__begin(struct process_clocks *clocks, const struct watched *watched);
/* What they used since, of the same processes. Of one that has ended meanwhile nothing is known. */
uint64_t process_clocks__used_ns(const struct process_clocks *clocks, const struct watched *watched);

#endif
