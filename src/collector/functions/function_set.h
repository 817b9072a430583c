/* SPDX-License-Identifier: GPL-2.0 */
/* function_set.h - what function_hooks.c and function_report.c share: the rows, and the state of each. */
#ifndef COLLECTOR_FUNCTION_SET_H
#define COLLECTOR_FUNCTION_SET_H

#include "abi.h"
#include "attach/tracepoints.h"
#include "functions.h"
#include "hooks.h"

struct hooked_function {
	const char *id;
	const char *symbols;
	/* CATEGORY_NONE: its calls are not counted. */
	enum category category;
	enum hook_kind kind;
	enum hook_bytes bytes;
	enum need need;
	const char *arguments;
};

extern const struct hooked_function function_rows[ROW_CNT];

/* For the outside, the hooks on zero-copy's life are one more row. */
#define ROW_ZEROCOPY ROW_CNT

struct functions {
	struct attach all[ROW_CNT];
	struct zerocopy *zerocopy;
	struct functions_options options;
	struct counters *counters;
	bool read_cost_refused;
};

bool function_set__works(const struct attach *function);
/* The row that sees the copy into the kernel; -1 when none works. */
int function_set__copy_in(const struct functions *functions);
/* Not used, because another row is better: other ways to see the copy, and the ends of a bracket where there is none. */
bool function_set__is_spare(const struct functions *functions, int row);

#endif
