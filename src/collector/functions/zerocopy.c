// SPDX-License-Identifier: GPL-2.0-only
#include "zerocopy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <copyscope.skel.h>

#include "abi.h"
#include "hooks.h"
#include "report/cells.h"
#include "report/maps.h"
#include "report/names.h"

static json_t *owners_json(const struct copyscope *skel)
{
	static const char *const contexts[OWNER_CONTEXTS] = { "process", "softirq", NULL };
	json_t *array = json_array();

	for (__u32 index = 0; index < OWNER_CELLS; index++) {
		__u32 owner = index / OWNER_CONTEXTS / (SIDE_OTHER + 1);
		struct owner_cell sum = {};

		if (!maps__sum(skel->maps.owner_cells, index, &sum, sizeof(sum)) || !sum.calls)
			continue;
		json_array_append_new(array, json_pack("{s:s?, s:s, s:s?, s:I, s:I}",
			"owner_side", owner == OWNER_UNKNOWN ? NULL : side_names[owner],
			"current_side", side_names[index / OWNER_CONTEXTS % (SIDE_OTHER + 1)],
			"context", contexts[index % OWNER_CONTEXTS],
			"calls", (json_int_t)sum.calls, "bytes", (json_int_t)sum.bytes));
	}
	return array;
}

static void add_completions(const struct copyscope *skel, json_t *completions, json_t *latencies)
{
	int cpus = libbpf_num_possible_cpus();
	struct completion_cell *cells = calloc(cpus, sizeof(*cells));

	for (__u32 side = 0; side <= SIDE_OTHER; side++) {
		struct completion_cell sum = {};
		__u64 histogram[HIST_SLOTS] = {};

		if (!maps__cells(bpf_map__fd(skel->maps.completion_cells), side, cells))
			continue;
		for (int cpu = 0; cpu < cpus; cpu++) {
			sum.copied += cells[cpu].copied;
			sum.zerocopied += cells[cpu].zerocopied;
			sum.notifications += cells[cpu].notifications;
			sum.before_return += cells[cpu].before_return;
			for (int slot = 0; slot < HIST_SLOTS; slot++)
				histogram[slot] += cells[cpu].histogram[slot];
		}
		if (!sum.notifications)
			continue;
		json_array_append_new(completions, json_pack("{s:s, s:I, s:I}", "side", side_names[side],
							     "copied", (json_int_t)sum.copied,
							     "zerocopied", (json_int_t)sum.zerocopied));
		json_array_append_new(latencies, json_pack("{s:s, s:I, s:I, s:o}", "side", side_names[side],
							   "count", (json_int_t)sum.notifications,
							   "before_return", (json_int_t)sum.before_return,
							   "histogram", cells__histogram_json(histogram)));
	}
	free(cells);
}

enum ends { ENTER = 1, LEAVE = 2, BOTH = ENTER | LEAVE };

static const struct {
	const char *id;
	const char *symbols;
	enum ends ends;
	const char *arguments;
} rows[LIFE_CNT] = {
#define ZEROCOPY(id, symbols, ends, arguments) { #id, symbols, ends, arguments },
	ZEROCOPIES(ZEROCOPY)
#undef ZEROCOPY
};

struct zerocopy {
	struct attach all[LIFE_CNT];
	/* The hooks were attached at least once, so zeros in the cells are counts. */
	bool counted;
};

static struct bpf_program *program_of(struct copyscope *skel, int row, enum ends end)
{
	switch (row << 2 | end) {
	case LIFE_zerocopy_use << 2 | ENTER: return skel->progs.enter_zerocopy_use;
	case LIFE_zerocopy_use << 2 | LEAVE: return skel->progs.leave_zerocopy_use;
	case LIFE_zerocopy_return << 2 | LEAVE: return skel->progs.leave_zerocopy_return;
	case LIFE_zerocopy_copy << 2 | ENTER: return skel->progs.enter_zerocopy_copy;
	case LIFE_zerocopy_drop << 2 | ENTER: return skel->progs.enter_zerocopy_drop;
	case LIFE_zerocopy_dropped << 2 | LEAVE: return skel->progs.leave_zerocopy_dropped;
	case LIFE_zerocopy_last << 2 | ENTER: return skel->progs.enter_zerocopy_last;
	default: return NULL;
	}
}

/* The hooks on every dropped reference also see the last one, so these two rows replace each other. */
static bool is_superseded(const struct zerocopy *zerocopy, int row)
{
	const struct attach *drop = &zerocopy->all[LIFE_zerocopy_drop];

	if (row == LIFE_zerocopy_last)
		return drop->state != STATE_MISSING;
	return (row == LIFE_zerocopy_drop || row == LIFE_zerocopy_dropped) && drop->state == STATE_MISSING &&
	       attach__works(&zerocopy->all[LIFE_zerocopy_last]);
}

/* Return the index of the first unusable row that other rows need, or a negative number without such a row. */
static int obstacle(const struct zerocopy *zerocopy)
{
	for (int row = 0; row < LIFE_CNT; row++)
		if (!attach__works(&zerocopy->all[row]) && !is_superseded(zerocopy, row))
			return row;
	return -1;
}

#define EACH_USED_ROW(zerocopy, row) \
	for (int row = 0; row < LIFE_CNT; row++) \
		if (!is_superseded(zerocopy, row))

int zerocopy__new(struct zerocopy **result, const struct attach_sources *sources, enum attach_wish wish,
		  unsigned int moves)
{
	struct zerocopy *zerocopy = calloc(1, sizeof(*zerocopy));

	if (!zerocopy)
		return -ENOMEM;
	for (int row = 0; row < LIFE_CNT; row++) {
		struct attach *hook = &zerocopy->all[row];

		if (wish == ATTACH_NOTHING)
			attach__skip(hook, rows[row].symbols, NOT_ASKED_FOR);
		else if (!(moves & MOVES_ZEROCOPY))
			attach__skip(hook, rows[row].symbols, NOTHING_PASSES);
		else
			attach__find(hook, rows[row].symbols, rows[row].arguments, sources, wish);
	}
	*result = zerocopy;
	return 0;
}

bool zerocopy__is_ready(const struct zerocopy *zerocopy)
{
	return obstacle(zerocopy) < 0;
}

int zerocopy__prepare(struct zerocopy *zerocopy, struct copyscope *skel, bool load)
{
	int err = 0;

	for (int row = 0; row < LIFE_CNT; row++) {
		struct bpf_program *enter = program_of(skel, row, ENTER), *leave = program_of(skel, row, LEAVE);
		struct attach *hook = &zerocopy->all[row];

		if (enter)
			bpf_program__set_autoload(enter, false);
		if (leave)
			bpf_program__set_autoload(leave, false);
		skel->rodata->life_arguments[row] = hook->arguments;
		skel->rodata->life_probed[row] = attach__is_probed(hook);
		if (load && !err && zerocopy__is_ready(zerocopy) && !is_superseded(zerocopy, row))
			err = attach__prepare(hook, enter, leave);
	}
	return err;
}

void zerocopy__refuse_way(struct zerocopy *zerocopy, enum attach_way way, const char *doing, int err)
{
	EACH_USED_ROW(zerocopy, row)
		if (attach__works(&zerocopy->all[row]) && zerocopy->all[row].way == way)
			attach__refuse(&zerocopy->all[row], doing, err);
}

void zerocopy__refuse(struct zerocopy *zerocopy, int err)
{
	/* The rows are loaded together, so the first hook method that any row uses has failed. */
	enum attach_way way = WAY_KPROBE;

	EACH_USED_ROW(zerocopy, row)
		if (zerocopy->all[row].way < way)
			way = zerocopy->all[row].way;
	zerocopy__refuse_way(zerocopy, way, "load: ", err);
}

void zerocopy__attach(struct zerocopy *zerocopy)
{
	int err = 0;

	if (!zerocopy__is_ready(zerocopy))
		return;
	EACH_USED_ROW(zerocopy, row) {
		struct attach *hook = &zerocopy->all[row];

		err = err ?: attach__attach(hook);
		/* The program was loaded for this hook method, so no other method can be tried any more. */
		hook->next = 0;
		hook->state = STATE_ATTACHED;
	}
	zerocopy->counted |= !err;
	if (!err)
		return;
	zerocopy__detach(zerocopy);
	EACH_USED_ROW(zerocopy, row)
		attach__refuse(&zerocopy->all[row], "attach: ", err);
}

int zerocopy__detach(struct zerocopy *zerocopy)
{
	int err = 0;

	for (int row = 0; row < LIFE_CNT; row++)
		err = attach__detach(&zerocopy->all[row]) ?: err;
	return err;
}

int zerocopy__forget(struct copyscope *skel)
{
	return maps__clear(skel->maps.zerocopy_uses) ?: maps__clear(skel->maps.zerocopy_sends) ?:
	       maps__clear(skel->maps.kept_arguments);
}

void zerocopy__add_hooks(const struct zerocopy *zerocopy, json_t *hooks)
{
	int missing = obstacle(zerocopy);

	for (int row = 0; row < LIFE_CNT; row++) {
		const struct attach *hook = &zerocopy->all[row];
		bool superseded = is_superseded(zerocopy, row), used = attach__works(hook) && missing < 0 && !superseded;
		char reason[sizeof(hook->reason) + SYMBOL_MAX];

		/* Either all hooks are attached or none, so all have the reason of the unusable one. */
		if (superseded && hook->state != STATE_UNUSED)
			snprintf(reason, sizeof(reason), "not needed: this kernel reports %s reference",
				 row == LIFE_zerocopy_last ? "each" : "the last");
		else if (missing >= 0 && attach__works(hook))
			snprintf(reason, sizeof(reason), "%s: %s", zerocopy->all[missing].symbol,
				 zerocopy->all[missing].reason);
		else
			snprintf(reason, sizeof(reason), "%s", hook->reason);
		json_array_append_new(hooks, json_pack("{s:s, s:s, s:s, s:s, s:s?, s:s?, s:b}",
						       "id", rows[row].id, "instrument", "functions",
						       "symbol", hook->symbol,
						       "state", state_names[superseded || (attach__works(hook) && !used) ?
									    STATE_UNUSED : hook->state],
						       "how", used ? attach__way_name(hook) : NULL,
						       "reason", used ? NULL : reason,
						       "required", 0));
	}
}

void zerocopy__add_loss(const struct zerocopy *zerocopy, json_t *loss)
{
	if (!zerocopy->counted)
		return;
	EACH_USED_ROW(zerocopy, row)
		attach__add_misses(loss, rows[row].id, &zerocopy->all[row]);
}

void zerocopy__add_json(const struct zerocopy *zerocopy, const struct copyscope *skel, json_t *functions)
{
	json_t *owners = json_null(), *completions = json_null(), *latencies = json_null();

	if (zerocopy->counted) {
		owners = owners_json(skel);
		completions = json_array();
		latencies = json_array();
		add_completions(skel, completions, latencies);
	}
	json_object_set_new(functions, "owners", owners);
	json_object_set_new(functions, "completions", completions);
	json_object_set_new(functions, "completion_latency", latencies);
}

void zerocopy__free(struct zerocopy *zerocopy)
{
	if (!zerocopy)
		return;
	for (int row = 0; row < LIFE_CNT; row++)
		attach__detach(&zerocopy->all[row]);
	free(zerocopy);
}
