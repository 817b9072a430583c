// SPDX-License-Identifier: GPL-2.0
#include "functions.h"

#include <stdlib.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <copyscope.skel.h>

#include "hooks.h"
#include "message.h"
#include "names.h"
#include "zerocopy.h"

#define SYMBOL_MAX 64

enum row {
#define FUNCTION(id, symbols, category, kind, bytes) ROW_##id,
	FUNCTIONS(FUNCTION)
#undef FUNCTION
	ROW_CNT,
	/* For the outside, the hooks on zero-copy's life are one more row. */
	ROW_ZEROCOPY = ROW_CNT,
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
	struct zerocopy *zerocopy;
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

int functions__new(struct functions **result, const struct btf *btf, bool wanted)
{
	struct functions *functions = calloc(1, sizeof(*functions));

	if (!functions)
		return -ENOMEM;
	for (int row = 0; row < ROW_CNT; row++) {
		find(&functions->all[row], rows[row].symbols, btf);
		if (!wanted) {
			functions->all[row].state = UNUSED;
			snprintf(functions->all[row].reason, sizeof(functions->all[row].reason), "not asked for");
		}
	}
	*result = functions;
	return zerocopy__new(&functions->zerocopy, btf, wanted);
}

int functions__count(void)
{
	return ROW_CNT + 1;
}

bool functions__is_ready(const struct functions *functions, int row)
{
	return row == ROW_ZEROCOPY ? zerocopy__is_ready(functions->zerocopy) : functions->all[row].state == READY;
}

void functions__refuse(struct functions *functions, int row, int err)
{
	if (row == ROW_ZEROCOPY) {
		zerocopy__refuse(functions->zerocopy, err);
		return;
	}
	functions->all[row].state = REFUSED;
	snprintf(functions->all[row].reason, sizeof(functions->all[row].reason), "load: %s", strerror(-err));
}

void functions__prepare(struct functions *functions, struct copyscope *skel, int only)
{
	skel->rodata->page_bytes = sysconf(_SC_PAGESIZE);
	zerocopy__prepare(functions->zerocopy, skel, only == FUNCTIONS_ALL || only == ROW_ZEROCOPY);
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
		zerocopy__attach(functions->zerocopy, skel);
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
	/* What was still open is forgotten: its exit will not be seen. */
	while (!bpf_map_get_next_key(bpf_map__fd(skel->maps.shadows), NULL, &tid))
		bpf_map_lookup_and_delete_elem(bpf_map__fd(skel->maps.shadows), &tid, &shadow);
	return zerocopy__detach(functions->zerocopy, skel) ?: err;
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
	zerocopy__add_hooks(functions->zerocopy, hooks);
}

void functions__add_loss(const struct functions *functions, struct copyscope *skel, json_t *loss)
{
	zerocopy__add_loss(functions->zerocopy, skel, loss);
}

static json_t *cells_json(const struct copyscope *skel, int cpus)
{
	struct function_cell *cells = calloc(cpus, sizeof(*cells));
	json_t *array = json_array();

	for (__u32 index = 0; cells && index < FUNCTION_CELLS; index++) {
		struct function_cell sum = {};

		if (bpf_map_lookup_elem(bpf_map__fd(skel->maps.function_cells), &index, cells))
			continue;
		for (int cpu = 0; cpu < cpus; cpu++) {
			sum.calls += cells[cpu].calls;
			sum.bytes += cells[cpu].bytes;
			sum.self_ns += cells[cpu].self_ns;
		}
		if (!sum.calls && !sum.self_ns)
			continue;
		json_array_append_new(array, json_pack("{s:s, s:s, s:s, s:I, s:I, s:I}",
			"side", side_names[index / CATEGORY_CNT / CONTEXTS],
			"context", index / CATEGORY_CNT % CONTEXTS ? "softirq" : "process",
			"category", category_names[index % CATEGORY_CNT],
			"calls", (json_int_t)sum.calls, "bytes", (json_int_t)sum.bytes,
			"self_ns", (json_int_t)sum.self_ns));
	}
	free(cells);
	return array;
}

static json_t *roots_json(const struct copyscope *skel, int cpus)
{
	struct root_cell *cells = calloc(cpus, sizeof(*cells));
	json_t *array = json_array();

	for (__u32 side = 0; cells && side <= SIDE_OTHER; side++) {
		struct root_cell sum = {};

		if (bpf_map_lookup_elem(bpf_map__fd(skel->maps.root_cells), &side, cells))
			continue;
		for (int cpu = 0; cpu < cpus; cpu++) {
			sum.calls += cells[cpu].calls;
			sum.inclusive_ns += cells[cpu].inclusive_ns;
		}
		json_array_append_new(array, json_pack("{s:s, s:I, s:I}", "side", side_names[side],
						       "calls", (json_int_t)sum.calls,
						       "inclusive_ns", (json_int_t)sum.inclusive_ns));
	}
	free(cells);
	return array;
}

json_t *functions__json(const struct functions *functions, const struct copyscope *skel)
{
	int cpus = libbpf_num_possible_cpus();
	json_t *section = json_pack("{s:o, s:o, s:I}", "cells", cells_json(skel, cpus), "roots", roots_json(skel, cpus),
				    "page_bytes", (json_int_t)skel->rodata->page_bytes);

	zerocopy__add_json(functions->zerocopy, skel, section);
	return section;
}

void functions__free(struct functions *functions)
{
	if (!functions)
		return;
	for (int row = 0; row < ROW_CNT; row++) {
		bpf_link__destroy(functions->all[row].enter);
		bpf_link__destroy(functions->all[row].leave);
	}
	zerocopy__free(functions->zerocopy);
	free(functions);
}
