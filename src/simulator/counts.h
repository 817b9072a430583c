/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SIMULATOR_COUNTS_H
#define SIMULATOR_COUNTS_H

#include <stdint.h>

/* Columns of a row, in the order of the output. */
#define COUNT_COLUMNS(X)                                                                    \
	X(calls) X(instructions)                                                            \
	X(read_bytes) X(written_bytes) X(read_lines) X(written_lines)                       \
	X(l1d_load_misses) X(l1d_store_misses) X(l2_load_misses) X(l2_store_misses)         \
	X(llc_load_misses) X(llc_store_misses) X(remote_lines) X(dirty_lines)               \
	X(tlb_l1_misses) X(tlb_l2_misses) X(tlb_flushes)

#define COUNT_INDEX(name) COUNT_##name,
enum count_column { COUNT_COLUMNS(COUNT_INDEX) COUNT_CNT };

struct counts {
	uint64_t of[COUNT_CNT];
};

#endif
