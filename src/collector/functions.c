// SPDX-License-Identifier: GPL-2.0
#include "functions.h"

#include <stdlib.h>

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <copyscope.skel.h>

#include "counters.h"
#include "function_cells.h"
#include "hooks.h"
#include "message.h"
#include "names.h"

#define SYMBOL_MAX 64

enum row {
#define FUNCTION(id, symbols, category, kind, bytes) ROW_##id,
	FUNCTIONS(FUNCTION)
#undef FUNCTION
	ROW_CNT,
};

static const struct {
	const char *id;
	const char *symbols;
	enum hook_kind kind;
} rows[ROW_CNT] = {
#define FUNCTION(id, symbols, category, kind, bytes) { #id, symbols, KIND_##kind },
	FUNCTIONS(FUNCTION)
#undef FUNCTION
};

enum state { UNUSED, READY, ATTACHED, MISSING, REFUSED };

static const char *const state_names[] = {
	[UNUSED] = "unused",
	[READY] = "available",
	[ATTACHED] = "attached",
	[MISSING] = "missing",
	[REFUSED] = "refused",
};

struct function {
	enum state state;
	char symbol[SYMBOL_MAX];
	char reason[128];
	struct bpf_link *enter;
	struct bpf_link *leave;
};

struct functions {
	struct function all[ROW_CNT];
	struct functions_options options;
	struct counters *counters;
	bool read_cost_refused;
};

struct programs {
	struct bpf_program *enter;
	struct bpf_program *leave;
};

static struct programs programs_of(struct copyscope *skel, int row)
{
	switch (row) {
#define FUNCTION(id, symbols, category, kind, bytes) \
	case ROW_##id: \
		return (struct programs){ skel->progs.enter_##id, skel->progs.leave_##id };
	FUNCTIONS(FUNCTION)
#undef FUNCTION
	default:
		return (struct programs){};
	}
}

/* The first candidate that this kernel has, by BTF. */
static void find(struct function *function, const char *symbols, const struct btf *btf)
{
	char list[2 * SYMBOL_MAX], *save = NULL, *name;

	snprintf(list, sizeof(list), "%s", symbols);
	for (name = strtok_r(list, "|", &save); name; name = strtok_r(NULL, "|", &save)) {
		snprintf(function->symbol, sizeof(function->symbol), "%s", name);
		if (btf && btf__find_by_name_kind(btf, name, BTF_KIND_FUNC) > 0) {
			function->state = READY;
			return;
		}
	}
	function->state = MISSING;
	snprintf(function->reason, sizeof(function->reason), "%s", btf ? "inlined or absent in this kernel" :
								       "this kernel has no BTF");
}

int functions__new(struct functions **result, const struct btf *btf, const struct functions_options *options)
{
	struct functions *functions = calloc(1, sizeof(*functions));

	if (!functions)
		return -ENOMEM;
	for (int row = 0; row < ROW_CNT; row++) {
		find(&functions->all[row], rows[row].symbols, btf);
		if (!options) {
			functions->all[row].state = UNUSED;
			snprintf(functions->all[row].reason, sizeof(functions->all[row].reason), "not asked for");
		}
	}
	*result = functions;
	if (!options)
		return 0;
	functions->options = *options;
	return counters__new(&functions->counters, options->count);
}

int functions__count(void)
{
	return ROW_CNT;
}

bool functions__is_ready(const struct functions *functions, int row)
{
	return functions->all[row].state == READY;
}

void functions__refuse(struct functions *functions, int row, int err)
{
	functions->all[row].state = REFUSED;
	snprintf(functions->all[row].reason, sizeof(functions->all[row].reason), "load: %s", strerror(-err));
}

void functions__refuse_read_cost(struct functions *functions)
{
	functions->read_cost_refused = true;
}

void functions__prepare(struct functions *functions, struct copyscope *skel, int only)
{
	bool read_cost = only == FUNCTIONS_READ_COST || (only == FUNCTIONS_ALL && !functions->read_cost_refused);

	skel->rodata->gate_one_in = functions->options.gate_one_in;
	skel->rodata->gate_seed = functions->options.seed;
	counters__prepare(functions->counters, skel, read_cost);
	for (int row = 0; row < ROW_CNT; row++) {
		struct programs programs = programs_of(skel, row);
		const char *symbol = functions->all[row].symbol;
		bool load = functions->all[row].state == READY && (only == FUNCTIONS_ALL || only == row);

		bpf_program__set_autoload(programs.enter, load);
		bpf_program__set_autoload(programs.leave, load && rows[row].kind != KIND_MARK);
		if (!load)
			continue;
		bpf_program__set_attach_target(programs.enter, 0, symbol);
		bpf_program__set_attach_target(programs.leave, 0, symbol);
	}
}

int functions__install(struct functions *functions, struct copyscope *skel)
{
	int err = counters__install(functions->counters, skel);

	if (!err && !functions->read_cost_refused)
		counters__measure_cost(functions->counters, skel);
	return err;
}

static int attach_one(struct function *function, struct programs programs, enum hook_kind kind)
{
	/* The exit first: an entry without its exit would break the stack. */
	if (kind != KIND_MARK) {
		function->leave = bpf_program__attach(programs.leave);
		if (!function->leave)
			return -errno;
	}
	function->enter = bpf_program__attach(programs.enter);
	if (function->enter)
		return 0;
	bpf_link__destroy(function->leave);
	function->leave = NULL;
	return -errno;
}

int functions__attach(struct functions *functions, struct copyscope *skel)
{
	const char *reason = "not asked for";
	int roots = 0;

	for (int row = 0; row < ROW_CNT; row++) {
		struct function *function = &functions->all[row];
		int err;

		if (function->state == READY || function->state == ATTACHED) {
			err = attach_one(function, programs_of(skel, row), rows[row].kind);
			function->state = err ? REFUSED : ATTACHED;
			if (err)
				snprintf(function->reason, sizeof(function->reason), "attach: %s", strerror(-err));
		}
		if (rows[row].kind == KIND_ROOT) {
			roots += function->state == ATTACHED;
			reason = function->reason;
		}
	}
	if (roots) {
		counters__switch(functions->counters, true);
		return 0;
	}
	complain("functions", "no function can be hooked here: %s", reason);
	return -ENOENT;
}

int functions__detach(struct functions *functions, struct copyscope *skel)
{
	struct shadow shadow;
	int err = 0;
	__u32 tid;

	for (int row = 0; row < ROW_CNT; row++) {
		struct function *function = &functions->all[row];

		err = bpf_link__destroy(function->enter) ?: err;
		err = bpf_link__destroy(function->leave) ?: err;
		function->enter = NULL;
		function->leave = NULL;
	}
	counters__switch(functions->counters, false);
	/* What was still open is forgotten: its exit will not be seen. */
	while (!bpf_map_get_next_key(bpf_map__fd(skel->maps.shadows), NULL, &tid))
		bpf_map_lookup_and_delete_elem(bpf_map__fd(skel->maps.shadows), &tid, &shadow);
	return err;
}

void functions__add_hooks(const struct functions *functions, json_t *hooks)
{
	for (int row = 0; row < ROW_CNT; row++) {
		const struct function *function = &functions->all[row];
		bool works = function->state == READY || function->state == ATTACHED;

		json_array_append_new(hooks, json_pack("{s:s, s:s, s:s, s:s, s:s?, s:s?, s:b}",
						       "id", rows[row].id, "instrument", "functions",
						       "symbol", function->symbol,
						       "state", state_names[function->state],
						       "how", works ? "fentry" : NULL,
						       "reason", works ? NULL : function->reason,
						       "required", 0));
	}
}

json_t *functions__json(const struct functions *functions, const struct copyscope *skel)
{
	int cpus = libbpf_num_possible_cpus();

	return json_pack("{s:o, s:o, s:I, s:o, s:o}",
			 "cells", function_cells__json(skel, functions->counters, cpus),
			 "roots", function_cells__roots_json(skel, functions->counters, cpus),
			 "gate", (json_int_t)functions->options.gate_one_in,
			 "events", counters__events_json(functions->counters),
			 "read_cost", counters__cost_json(functions->counters));
}

void functions__free(struct functions *functions)
{
	if (!functions)
		return;
	for (int row = 0; row < ROW_CNT; row++) {
		bpf_link__destroy(functions->all[row].enter);
		bpf_link__destroy(functions->all[row].leave);
	}
	counters__free(functions->counters);
	free(functions);
}
