// SPDX-License-Identifier: GPL-2.0-only
#include "functions.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <copyscope.skel.h>

#include "abi.h"
#include "attach/tracepoints.h"
#include "counters.h"
#include "hooks.h"
#include "kernel/ksyms.h"
#include "report/maps.h"
#include "report/message.h"
#include "report/names.h"
#include "zerocopy.h"

struct hooked_function {
	const char *id;
	const char *symbols;
	/* Calls of a category from CATEGORY_CNT on are not counted. */
	enum category category;
	enum hook_kind kind;
	enum hook_bytes bytes;
	enum need need;
	enum moves moves;
	const char *arguments;
};

static const struct hooked_function function_rows[ROW_CNT] = {
#define FUNCTION(id, symbols, category, kind, bytes, need, moves, arguments) \
	{ #id, symbols, CATEGORY_##category, KIND_##kind, BYTES_##bytes, need, MOVES_##moves, arguments },
	FUNCTIONS(FUNCTION)
#undef FUNCTION
};

/* A row whose programs read an argument must name that argument. */
#define FUNCTION(id, symbols, category, kind, bytes, need, moves, arguments) \
	_Static_assert(sizeof(arguments) > 1 || (KIND_##kind != KIND_ROOT && \
		       (BYTES_##bytes == BYTES_NONE || BYTES_##bytes == BYTES_RETURNED)), #id);
FUNCTIONS(FUNCTION)
#undef FUNCTION

/* Callers see the hooks on the life of a zero-copy send as one more row. */
#define ROW_ZEROCOPY ROW_CNT

struct functions {
	struct attach all[ROW_CNT];
	struct zerocopy *zerocopy;
	struct functions_options options;
	struct counters *counters;
	bool read_cost_refused;
};

static bool is_way_to_copy_in(int row)
{
	return function_rows[row].kind == KIND_CALL || function_rows[row].kind == KIND_BRACKET;
}

/* Return the first usable row of a kind, or -1. */
static int first_usable(const struct functions *functions, enum hook_kind kind)
{
	for (int row = 0; row < ROW_CNT; row++)
		if (function_rows[row].kind == kind && attach__works(&functions->all[row]))
			return row;
	return -1;
}

/* Return the row that measures the copy into the kernel, or -1 if none is usable. */
static int way_to_copy_in(const struct functions *functions)
{
	enum copy_in_wish wish = functions->options.copy_in;
	int call = first_usable(functions, KIND_CALL), bracket = first_usable(functions, KIND_BRACKET);

	/* kprobes are slow to attach and detach (docs/dev/decisions/004-function-hooks.md). */
	if (wish == COPY_IN_ANY && bracket >= 0 && functions->all[bracket].way != WAY_KPROBE)
		wish = COPY_IN_BRACKET;
	if (wish == COPY_IN_BRACKET)
		return bracket;
	return call >= 0 ? call : bracket;
}

/*
 * Return true for a row that another one makes unnecessary: other ways to measure the copy, and the ends of a bracket
 * if no bracket is used.
 */
static bool is_superseded(const struct functions *functions, int row)
{
	int copy_in = way_to_copy_in(functions);
	bool at_call = copy_in >= 0 && function_rows[copy_in].kind == KIND_CALL;

	if (function_rows[row].kind == KIND_MARK)
		return at_call;
	/* The user requested the call site explicitly, so its row must be reported as missing. */
	if (function_rows[row].kind == KIND_CALL && functions->options.copy_in == COPY_IN_CALL_SITE && !at_call)
		return false;
	return is_way_to_copy_in(row) && copy_in >= 0 && row != copy_in;
}

struct programs {
	struct bpf_program *enter;
	struct bpf_program *leave;
};

static struct programs programs_of(struct copyscope *skel, int row)
{
	switch (row) {
#define FUNCTION(id, symbols, category, kind, bytes, need, moves, arguments) \
	case ROW_##id: \
		return (struct programs){ skel->progs.enter_##id, skel->progs.leave_##id };
	FUNCTIONS(FUNCTION)
#undef FUNCTION
	default:
		return (struct programs){};
	}
}

static void find_function(struct functions *functions, int row, const struct attach_sources *sources)
{
	const struct hooked_function *wanted = &function_rows[row];
	const struct functions_options *options = &functions->options;
	struct attach *function = &functions->all[row];

	if (options->attach == ATTACH_NOTHING || (wanted->kind == KIND_CALL && options->copy_in == COPY_IN_BRACKET))
		attach__skip(function, wanted->symbols, NOT_ASKED_FOR);
	else if (!(wanted->moves & options->moves))
		attach__skip(function, wanted->symbols, NOTHING_PASSES);
	else if (wanted->kind == KIND_CALL)
		attach__find_calls(function, COPY_CALLERS, wanted->symbols, wanted->arguments, sources);
	else
		attach__find(function, wanted->symbols, wanted->arguments, sources, options->attach);
}

bool functions__read_moves(const char *list, unsigned int *moves)
{
	static const struct {
		const char *name;
		enum moves bit;
	} names[] = { { "zerocopy", MOVES_ZEROCOPY }, { "pages", MOVES_PAGES }, { "tls", MOVES_TLS }, { "map", MOVES_MAP } };
	size_t length;

	*moves = MOVES_ALWAYS;
	for (; *list; list += length + (list[length] == ',')) {
		unsigned int before = *moves;

		length = strcspn(list, ",");
		for (size_t i = 0; i < sizeof(names) / sizeof(*names); i++)
			if (strlen(names[i].name) == length && !strncmp(names[i].name, list, length))
				*moves |= names[i].bit;
		if (*moves == before)
			return false;
	}
	return true;
}

int functions__new(struct functions **result, const struct btf *btf, const struct functions_options *options)
{
	enum attach_wish wish = options->attach;
	struct attach_sources sources = {};
	struct functions *functions = calloc(1, sizeof(*functions));
	struct ksyms *ksyms = NULL;
	int err = 0;

	if (!functions)
		return -ENOMEM;
	attach__detect(&sources, btf);
	if (wish != ATTACH_NOTHING && (!sources.no_kprobes || sources.multi))
		err = ksyms__load(&ksyms);
	if (err == -EPERM) {
		sources.no_kprobes = "/proc/kallsyms has no addresses (kernel.kptr_restrict)";
		err = 0;
	}
	if (err) {
		free(functions);
		return err;
	}
	sources.ksyms = ksyms;
	functions->options = *options;
	/* A user who requests fentry only must not get the kprobes of a call site. */
	if (wish == ATTACH_FENTRY && options->copy_in == COPY_IN_ANY)
		functions->options.copy_in = COPY_IN_BRACKET;
	for (int row = 0; row < ROW_CNT; row++)
		find_function(functions, row, &sources);
	*result = functions;
	err = zerocopy__new(&functions->zerocopy, &sources, wish, options->moves);
	ksyms__free(ksyms);
	return err || wish == ATTACH_NOTHING ? err : counters__new(&functions->counters, options->count);
}

static int next_row(const struct functions *functions, int row)
{
	for (; row < ROW_CNT; row++)
		if (functions->all[row].state == STATE_READY && !is_superseded(functions, row))
			return row;
	return -1;
}

int functions__next(const struct functions *functions, int row)
{
	int next = next_row(functions, row);

	if (next < 0 && row <= ROW_ZEROCOPY && zerocopy__is_ready(functions->zerocopy))
		return ROW_ZEROCOPY;
	return next;
}

void functions__refuse(struct functions *functions, int row, int err)
{
	enum attach_way way;

	if (row == ROW_ZEROCOPY) {
		zerocopy__refuse(functions->zerocopy, err);
		return;
	}
	way = functions->all[row].way;
	attach__refuse(&functions->all[row], "load: ", err);
	if (err != -EPERM)
		return;
	/* A security policy refuses all functions, so other functions need not be tried. */
	for (row = next_row(functions, 0); row >= 0; row = next_row(functions, row + 1))
		if (functions->all[row].way == way)
			attach__refuse(&functions->all[row], "load: ", err);
	zerocopy__refuse_way(functions->zerocopy, way, "load: ", err);
}

void functions__refuse_read_cost(struct functions *functions)
{
	functions->read_cost_refused = true;
}

int functions__install(struct functions *functions, struct copyscope *skel)
{
	int err = counters__install(functions->counters, skel);

	if (!err && !functions->read_cost_refused)
		counters__measure_cost(functions->counters, skel);
	return err;
}

int functions__prepare(struct functions *functions, struct copyscope *skel, int only)
{
	bool read_cost = only == FUNCTIONS_READ_COST || (only == FUNCTIONS_ALL && !functions->read_cost_refused);
	int err = 0;

	skel->rodata->page_bytes = sysconf(_SC_PAGESIZE);
	err = zerocopy__prepare(functions->zerocopy, skel, only == FUNCTIONS_ALL || only == ROW_ZEROCOPY);
	skel->data->gate_one_in = functions->options.gate_one_in;
	skel->rodata->gate_seed = functions->options.seed;
	counters__prepare(functions->counters, skel, read_cost);
	for (int row = 0; row < ROW_CNT; row++) {
		struct programs programs = programs_of(skel, row);

		bpf_program__set_autoload(programs.enter, false);
		bpf_program__set_autoload(programs.leave, false);
	}
	for (int row = next_row(functions, 0); row >= 0 && !err; row = next_row(functions, row + 1)) {
		struct programs programs = programs_of(skel, row);
		struct attach *function = &functions->all[row];
		bool bracket = function_rows[row].kind == KIND_BRACKET;
		/* A kretprobe no longer sees the arguments. */
		bool at_entry = bracket && function_rows[row].bytes == BYTES_CHECKED && attach__is_probed(function);

		if (only != FUNCTIONS_ALL && only != row)
			continue;
		err = attach__prepare(function, bracket && !at_entry ? NULL : programs.enter,
				      function_rows[row].kind == KIND_MARK || at_entry ? NULL : programs.leave);
		skel->rodata->function_arguments[row] = function->arguments;
		skel->rodata->function_probed[row] = attach__is_probed(function);
	}
	return err;
}

/*
 * Before 5.13 (commit f3a95075549e) a program can be attached by fentry only once; later attempts fail with ENOENT.
 * Every segment attaches again.
 */
static int try_second_attach(struct functions *functions)
{
	int refused = 0, err = 0;

	for (int row = next_row(functions, 0); row >= 0; row = next_row(functions, row + 1)) {
		struct attach *function = &functions->all[row];

		if (function->way != WAY_FENTRY)
			continue;
		if (!err) {
			err = attach__attach(function);
			attach__detach(function);
			if (err != -ENOENT)
				break;
		}
		attach__refuse(function, "attach a second time: ", err);
		refused++;
	}
	if (refused)
		zerocopy__refuse_way(functions->zerocopy, WAY_FENTRY, "attach a second time: ", err);
	return refused;
}

int functions__try(struct functions *functions)
{
	/* One entry per hook method, and one entry for call sites. */
	bool attached[WAY_CNT + 1] = {};
	int refused = 0, errors[WAY_CNT] = {};

	/*
	 * Trying one function per hook method is enough: attaching and detaching all functions takes seconds on a
	 * slow machine.
	 */
	for (int row = next_row(functions, 0); row >= 0; row = next_row(functions, row + 1)) {
		struct attach *function = &functions->all[row];
		int way = function->sites_cnt ? WAY_CNT : function->way;
		int err;

		if (attached[way])
			continue;
		err = attach__attach(function);
		attached[way] = !err;
		if (!err)
			continue;
		if (way < WAY_CNT)
			errors[way] = err;
		attach__refuse(function, "attach: ", err);
		refused++;
	}
	functions__detach(functions);
	for (int way = 0; way < WAY_KPROBE; way++)
		if (errors[way] && !attached[way])
			zerocopy__refuse_way(functions->zerocopy, way, "attach: ", errors[way]);
	return refused ?: try_second_attach(functions);
}

int functions__attach(struct functions *functions)
{
	for (int row = 0; row < ROW_CNT; row++) {
		struct attach *function = &functions->all[row];

		if (attach__works(function) && !is_superseded(functions, row)) {
			int err = attach__attach(function);

			function->next = 0;
			function->state = STATE_ATTACHED;
			if (err)
				attach__refuse(function, "attach: ", err);
		}
		if (function_rows[row].need == REQUIRED && function->state != STATE_ATTACHED) {
			if (function->state != STATE_UNUSED)
				complain("functions", "%s: %s", function->symbol, function->reason);
			return -ENOENT;
		}
	}
	zerocopy__attach(functions->zerocopy);
	return 0;
}

int functions__detach(struct functions *functions)
{
	int err = 0;

	for (int row = 0; row < ROW_CNT; row++)
		err = attach__detach(&functions->all[row]) ?: err;
	return zerocopy__detach(functions->zerocopy) ?: err;
}

int functions__arm(struct functions *functions, struct copyscope *skel)
{
	int err = maps__wipe(skel->maps.call_stacks) ?: zerocopy__forget(skel);

	if (!err)
		counters__switch(functions->counters, true);
	return err;
}

int functions__disarm(struct functions *functions, struct copyscope *skel)
{
	counters__switch(functions->counters, false);
	return zerocopy__forget(skel);
}

int functions__gate(struct functions *functions, struct copyscope *skel, unsigned int one_in)
{
	functions->options.gate_one_in = one_in;
	skel->data->gate_one_in = one_in;
	return maps__zero(skel->maps.function_cells) ?: maps__zero(skel->maps.owner_cells) ?:
	       maps__zero(skel->maps.completion_cells);
}

void functions__free(struct functions *functions)
{
	if (!functions)
		return;
	for (int row = 0; row < ROW_CNT; row++)
		attach__detach(&functions->all[row]);
	zerocopy__free(functions->zerocopy);
	counters__free(functions->counters);
	free(functions);
}

void functions__add_hooks(const struct functions *functions, json_t *hooks)
{
	for (int row = 0; row < ROW_CNT; row++) {
		const struct attach *function = &functions->all[row];
		bool usable = attach__works(function);
		bool superseded = is_superseded(functions, row);
		bool used = usable && !superseded;
		const char *reason = !usable ? function->reason : function_rows[row].kind == KIND_MARK ?
				     "not needed: the end of the copy is hooked directly" : "not needed: another hook measures the copy";
		enum category category = function_rows[row].category;

		json_array_append_new(hooks, json_pack("{s:s, s:s, s:s?, s:s, s:s, s:s?, s:s?, s:b}",
						       "id", function_rows[row].id, "instrument", "functions",
						       "category", category < CATEGORY_CNT ? category_names[category] : NULL,
						       "symbol", function->symbol,
						       "state", state_names[superseded ? STATE_UNUSED : function->state],
						       "how", used ? attach__way_name(function) : NULL,
						       "reason", used ? NULL : reason,
						       "required", function_rows[row].need == REQUIRED));
	}
	zerocopy__add_hooks(functions->zerocopy, hooks);
}

void functions__add_losses(const struct functions *functions, json_t *loss)
{
	for (int row = 0; row < ROW_CNT; row++)
		if (functions->all[row].state == STATE_ATTACHED)
			attach__add_misses(loss, function_rows[row].id, &functions->all[row]);
	zerocopy__add_loss(functions->zerocopy, loss);
}

static json_t *cell_json(__u32 index, const struct copyscope *skel, const struct counters *counters)
{
	const double square = (double)(1 << SQUARE_SHIFT) * (1 << SQUARE_SHIFT);
	struct function_cell sum = {};

	if (!maps__sum(skel->maps.function_cells, index, &sum, sizeof(sum)) || (!sum.calls && !sum.self.ns))
		return NULL;
	return json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:f, s:o}",
			 "side", side_names[index / CATEGORY_CNT / CONTEXTS],
			 "context", index / CATEGORY_CNT % CONTEXTS ? "softirq" : "process",
			 "category", category_names[index % CATEGORY_CNT],
			 "calls", (json_int_t)sum.calls, "bytes", (json_int_t)sum.bytes,
			 "timed_calls", (json_int_t)sum.timed_calls,
			 "self_ns", (json_int_t)sum.self.ns, "self_ns_squared", sum.squares * square,
			 "counters", counters__values_json(counters, sum.self.counters));
}

static json_t *cells_json(const struct copyscope *skel, const struct counters *counters)
{
	json_t *array = json_array();

	/* json_array_append_new() ignores NULL. */
	for (__u32 index = 0; index < FUNCTION_CELLS; index++)
		json_array_append_new(array, cell_json(index, skel, counters));
	return array;
}

json_t *functions__json(const struct functions *functions, const struct copyscope *skel)
{
	const struct counters *counters = functions->counters;
	json_t *section = json_pack("{s:o, s:I, s:o, s:o}", "cells", cells_json(skel, counters),
				    "gate", (json_int_t)functions->options.gate_one_in,
				    "events", counters__events_json(counters), "read_cost", counters__cost_json(counters));

	zerocopy__add_json(functions->zerocopy, skel, section);
	return section;
}
