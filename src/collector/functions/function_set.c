// SPDX-License-Identifier: GPL-2.0
/* function_set.c - which of the rows that work are used. */
#include "function_set.h"

bool function_set__works(const struct attach *function)
{
	return function->state == STATE_READY || function->state == STATE_ATTACHED;
}

static bool is_way_to_copy_in(int row)
{
	return function_rows[row].kind == KIND_CALL || function_rows[row].kind == KIND_BRACKET;
}

/* The first that works of one kind, or -1. */
static int first(const struct functions *functions, enum hook_kind kind)
{
	for (int row = 0; row < ROW_CNT; row++)
		if (function_rows[row].kind == kind && function_set__works(&functions->all[row]))
			return row;
	return -1;
}

int function_set__copy_in(const struct functions *functions)
{
	enum copy_in_wish wish = functions->options.copy_in;
	int call = first(functions, KIND_CALL), bracket = first(functions, KIND_BRACKET);

	/* Kprobes are slow to switch (METHOD.md). */
	if (wish == COPY_IN_ANY && bracket >= 0 && functions->all[bracket].way != WAY_KPROBE)
		wish = COPY_IN_BRACKET;
	if (wish == COPY_IN_BRACKET)
		return bracket;
	return call >= 0 ? call : bracket;
}

bool function_set__is_spare(const struct functions *functions, int row)
{
	int copy_in = function_set__copy_in(functions);
	bool at_call = copy_in >= 0 && function_rows[copy_in].kind == KIND_CALL;

	if (function_rows[row].kind == KIND_MARK)
		return at_call;
	/* Asked for by name, it is missed. */
	if (function_rows[row].kind == KIND_CALL && functions->options.copy_in == COPY_IN_CALL_SITE && !at_call)
		return false;
	return is_way_to_copy_in(row) && copy_in >= 0 && row != copy_in;
}
