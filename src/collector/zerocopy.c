// SPDX-License-Identifier: GPL-2.0
#include "zerocopy.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/bpf.h>
#include <bpf/btf.h>
#include <bpf/libbpf.h>
#include <copyscope.skel.h>

#include "cells.h"
#include "hooks.h"
#include "names.h"
#include "recursion.h"

#define SYMBOL_MAX 64

enum life {
#define ZEROCOPY(id, symbols) LIFE_##id,
	ZEROCOPIES(ZEROCOPY)
#undef ZEROCOPY
	LIFE_CNT,
};

static const struct {
	const char *id;
	const char *symbols;
} rows[LIFE_CNT] = {
#define ZEROCOPY(id, symbols) { #id, symbols },
	ZEROCOPIES(ZEROCOPY)
#undef ZEROCOPY
};

enum state { UNUSED, READY, ATTACHED, MISSING, REFUSED };

static const char *const state_names[] = {
	[UNUSED] = "unused",
	[READY] = "available",
	[ATTACHED] = "attached",
	[MISSING] = "missing",
	[REFUSED] = "refused",
};

struct zerocopy {
	/* Of all: one without the others says nothing. */
	enum state state;
	char reason[160];
	char symbols[LIFE_CNT][SYMBOL_MAX];
	struct bpf_link *links[LIFE_CNT];
	/* Whether they ever were attached: then the cells are counts, and zero is one. */
	bool counted;
};

static struct bpf_program *program_of(struct copyscope *skel, int row)
{
	switch (row) {
#define ZEROCOPY(id, symbols) \
	case LIFE_##id: \
		return skel->progs.on_##id;
	ZEROCOPIES(ZEROCOPY)
#undef ZEROCOPY
	default:
		return NULL;
	}
}

/* The first candidate that this kernel has, by BTF; else the last one, by name. */
static bool find(char symbol[SYMBOL_MAX], const char *symbols, const struct btf *btf)
{
	char list[2 * SYMBOL_MAX], *save = NULL, *name;

	snprintf(list, sizeof(list), "%s", symbols);
	for (name = strtok_r(list, "|", &save); name; name = strtok_r(NULL, "|", &save)) {
		snprintf(symbol, SYMBOL_MAX, "%s", name);
		if (btf && btf__find_by_name_kind(btf, name, BTF_KIND_FUNC) > 0)
			return true;
	}
	return false;
}

int zerocopy__new(struct zerocopy **result, const struct btf *btf, bool wanted)
{
	struct zerocopy *zerocopy = calloc(1, sizeof(*zerocopy));

	if (!zerocopy)
		return -ENOMEM;
	zerocopy->state = READY;
	for (int row = 0; row < LIFE_CNT; row++) {
		if (find(zerocopy->symbols[row], rows[row].symbols, btf))
			continue;
		zerocopy->state = MISSING;
		snprintf(zerocopy->reason, sizeof(zerocopy->reason), "%s: %s", zerocopy->symbols[row],
			 btf ? "inlined or absent in this kernel" : "this kernel has no BTF");
	}
	if (!wanted) {
		zerocopy->state = UNUSED;
		snprintf(zerocopy->reason, sizeof(zerocopy->reason), "not asked for");
	}
	*result = zerocopy;
	return 0;
}

bool zerocopy__is_ready(const struct zerocopy *zerocopy)
{
	return zerocopy->state == READY;
}

void zerocopy__prepare(const struct zerocopy *zerocopy, struct copyscope *skel, bool load)
{
	for (int row = 0; row < LIFE_CNT; row++) {
		struct bpf_program *program = program_of(skel, row);

		bpf_program__set_autoload(program, load && zerocopy->state == READY);
		if (load && zerocopy->state == READY)
			bpf_program__set_attach_target(program, 0, zerocopy->symbols[row]);
	}
}

void zerocopy__refuse(struct zerocopy *zerocopy, int err)
{
	zerocopy->state = REFUSED;
	snprintf(zerocopy->reason, sizeof(zerocopy->reason), "load: %s", strerror(-err));
}

void zerocopy__attach(struct zerocopy *zerocopy, struct copyscope *skel)
{
	if (zerocopy->state != READY && zerocopy->state != ATTACHED)
		return;
	zerocopy->state = ATTACHED;
	for (int row = 0; row < LIFE_CNT; row++) {
		zerocopy->links[row] = bpf_program__attach(program_of(skel, row));
		if (zerocopy->links[row])
			continue;
		zerocopy->state = REFUSED;
		snprintf(zerocopy->reason, sizeof(zerocopy->reason), "%s: attach: %s", zerocopy->symbols[row],
			 strerror(errno));
		zerocopy__detach(zerocopy, skel);
		return;
	}
	zerocopy->counted = true;
}

int zerocopy__detach(struct zerocopy *zerocopy, struct copyscope *skel)
{
	struct zerocopy_send send;
	struct zerocopy_use use;
	__u64 ubuf;
	__u32 tid;
	int err = 0;

	for (int row = 0; row < LIFE_CNT; row++) {
		err = bpf_link__destroy(zerocopy->links[row]) ?: err;
		zerocopy->links[row] = NULL;
	}
	/* What is still under way is forgotten: its end will not be seen. */
	while (!bpf_map_get_next_key(bpf_map__fd(skel->maps.zerocopy_uses), NULL, &ubuf))
		bpf_map_lookup_and_delete_elem(bpf_map__fd(skel->maps.zerocopy_uses), &ubuf, &use);
	while (!bpf_map_get_next_key(bpf_map__fd(skel->maps.zerocopy_sends), NULL, &tid))
		bpf_map_lookup_and_delete_elem(bpf_map__fd(skel->maps.zerocopy_sends), &tid, &send);
	return err;
}

void zerocopy__add_hooks(const struct zerocopy *zerocopy, json_t *hooks)
{
	bool works = zerocopy->state == READY || zerocopy->state == ATTACHED;

	for (int row = 0; row < LIFE_CNT; row++)
		json_array_append_new(hooks, json_pack("{s:s, s:s, s:s, s:s, s:s?, s:s?, s:b}",
						       "id", rows[row].id, "instrument", "functions",
						       "symbol", zerocopy->symbols[row],
						       "state", state_names[zerocopy->state],
						       "how", works ? "fentry" : NULL,
						       "reason", works ? NULL : zerocopy->reason,
						       "required", 0));
}

void zerocopy__add_loss(const struct zerocopy *zerocopy, struct copyscope *skel, json_t *loss)
{
	for (int row = 0; zerocopy->counted && row < LIFE_CNT; row++)
		recursion__add(loss, rows[row].id, program_of(skel, row));
}

static json_t *owners_json(const struct copyscope *skel, int cpus)
{
	static const char *const contexts[OWNER_CONTEXTS] = { "process", "softirq", NULL };
	struct owner_cell *cells = calloc(cpus, sizeof(*cells));
	json_t *array = json_array();

	for (__u32 index = 0; cells && index < OWNER_CELLS; index++) {
		__u32 owner = index / OWNER_CONTEXTS / (SIDE_OTHER + 1);
		struct owner_cell sum = {};

		if (bpf_map_lookup_elem(bpf_map__fd(skel->maps.owner_cells), &index, cells))
			continue;
		for (int cpu = 0; cpu < cpus; cpu++) {
			sum.calls += cells[cpu].calls;
			sum.bytes += cells[cpu].bytes;
		}
		if (!sum.calls)
			continue;
		json_array_append_new(array, json_pack("{s:s?, s:s, s:s?, s:I, s:I}",
			"owner_side", owner == OWNER_UNKNOWN ? NULL : side_names[owner],
			"current_side", side_names[index / OWNER_CONTEXTS % (SIDE_OTHER + 1)],
			"context", contexts[index % OWNER_CONTEXTS],
			"calls", (json_int_t)sum.calls, "bytes", (json_int_t)sum.bytes));
	}
	free(cells);
	return array;
}

static void add_completions(const struct copyscope *skel, int cpus, json_t *completions, json_t *latencies)
{
	struct completion_cell *cells = calloc(cpus, sizeof(*cells));

	for (__u32 side = 0; cells && side <= SIDE_OTHER; side++) {
		struct completion_cell sum = {};
		__u64 histogram[HIST_SLOTS] = {};

		if (bpf_map_lookup_elem(bpf_map__fd(skel->maps.completion_cells), &side, cells))
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

void zerocopy__add_json(const struct zerocopy *zerocopy, const struct copyscope *skel, json_t *functions)
{
	json_t *completions = zerocopy->counted ? json_array() : json_null();
	json_t *latencies = zerocopy->counted ? json_array() : json_null();
	json_t *owners = json_null();
	int cpus = libbpf_num_possible_cpus();

	if (zerocopy->counted) {
		owners = owners_json(skel, cpus);
		add_completions(skel, cpus, completions, latencies);
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
		bpf_link__destroy(zerocopy->links[row]);
	free(zerocopy);
}
