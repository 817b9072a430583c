// SPDX-License-Identifier: GPL-2.0-only
#include "stacks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/bpf.h>

#include "report/cells.h"
#include "report/names.h"
#include "sampler.h"

/* Elements per read of the map: about 256 KiB of values. */
#define BATCH 256

enum { EVENT, SIDE, OWNER, DEPTH, USER_PID, KEYS };

struct tally {
	uint64_t samples;
	uint64_t weight;
	double weight_squared;
};

struct row {
	struct tally taken;
	/* Part of `taken` that earlier calls with only_new returned. */
	struct tally reported;
	uint32_t *frames;
	/*
	 * Watched program in user mode: the address, and two candidate return addresses (`back` and `framed_back`). All
	 * are 0 in other samples.
	 */
	uint64_t address;
	uint64_t back;
	uint64_t thread[2];
	uint64_t cgroup_id;
	uint64_t framed_back;
	/* Sort keys, in the order of the output. */
	uint32_t key[KEYS];
};

struct stacks {
	struct row *rows;
	size_t count;
	size_t capacity;
	size_t merged;
	struct stack_cell values[BATCH];
	uint64_t keys[BATCH];
};

int stacks__new(struct stacks **stacks)
{
	*stacks = calloc(1, sizeof(**stacks));
	return *stacks ? 0 : -ENOMEM;
}

static int by_stack(const void *a, const void *b)
{
	const struct row *x = a, *y = b;

	for (int i = 0; i < KEYS; i++)
		if (x->key[i] != y->key[i])
			return x->key[i] < y->key[i] ? -1 : 1;
	if (x->address != y->address)
		return x->address < y->address ? -1 : 1;
	if (x->back != y->back)
		return x->back < y->back ? -1 : 1;
	for (int i = 0; i < 2; i++)
		if (x->thread[i] != y->thread[i])
			return x->thread[i] < y->thread[i] ? -1 : 1;
	if (x->cgroup_id != y->cgroup_id)
		return x->cgroup_id < y->cgroup_id ? -1 : 1;
	if (x->framed_back != y->framed_back)
		return x->framed_back < y->framed_back ? -1 : 1;
	return memcmp(x->frames, y->frames, x->key[DEPTH] * sizeof(*x->frames));
}

static void add_tally(struct tally *into, const struct tally *part)
{
	into->samples += part->samples;
	into->weight += part->weight;
	into->weight_squared += part->weight_squared;
}

static struct tally subtract_tally(const struct tally *taken, const struct tally *reported)
{
	return (struct tally){
		.samples = taken->samples - reported->samples,
		.weight = taken->weight - reported->weight,
		.weight_squared = taken->weight_squared - reported->weight_squared,
	};
}

static void merge(struct stacks *stacks)
{
	size_t last = 0;

	if (!stacks->count)
		return;
	qsort(stacks->rows, stacks->count, sizeof(*stacks->rows), by_stack);
	for (size_t i = 1; i < stacks->count; i++) {
		struct row *into = &stacks->rows[last], *row = &stacks->rows[i];

		if (by_stack(into, row)) {
			stacks->rows[++last] = *row;
			continue;
		}
		add_tally(&into->taken, &row->taken);
		add_tally(&into->reported, &row->reported);
		free(row->frames);
	}
	stacks->count = last + 1;
	stacks->merged = stacks->count;
}

static int add_row(struct stacks *stacks, const struct stack_cell *cell, const struct ksyms *ksyms)
{
	uint32_t depth = cell->depth < STACK_DEPTH ? cell->depth : STACK_DEPTH;
	double unit = WEIGHT_UNIT(cell->event);
	struct row *row;

	if (stacks->count == stacks->capacity) {
		size_t capacity = stacks->capacity ? 2 * stacks->capacity : 4096;
		void *rows = realloc(stacks->rows, capacity * sizeof(*stacks->rows));

		if (!rows)
			return -ENOMEM;
		stacks->rows = rows;
		stacks->capacity = capacity;
	}
	row = &stacks->rows[stacks->count];
	*row = (struct row){ .taken = { cell->samples, cell->weight, (double)cell->weight_squared * unit * unit },
			     .address = cell->user_pid ? cell->frames[0] : 0,
			     .back = cell->user_pid ? cell->frames[1] : 0,
			     .thread = { cell->thread[0], cell->thread[1] },
			     .cgroup_id = cell->cgroup_id,
			     .framed_back = cell->user_pid ? cell->frames[2] : 0,
			     .key = { cell->event, cell->side, cell->owner, depth, cell->user_pid } };
	row->frames = malloc((depth + 1) * sizeof(*row->frames));
	if (!row->frames)
		return -ENOMEM;
	/* All frames except the leaf are return addresses; one byte before is inside the call. */
	for (uint32_t i = 0; i < depth; i++)
		row->frames[i] = ksyms__find(ksyms, cell->frames[i] - (i > 0));
	stacks->count++;
	return 0;
}

int stacks__drain(struct stacks *stacks, int map_fd, const struct ksyms *ksyms)
{
	uint64_t cursor_in, cursor_out;
	void *cursor = NULL;
	__u32 count;
	int err;

	do {
		count = BATCH;
		err = bpf_map_lookup_and_delete_batch(map_fd, cursor, &cursor_out, stacks->keys,
						      stacks->values, &count, NULL);
		if (err && err != -ENOENT)
			return err;
		for (__u32 i = 0; i < count; i++) {
			int failed = add_row(stacks, &stacks->values[i], ksyms);

			if (failed)
				return failed;
		}
		cursor_in = cursor_out;
		cursor = &cursor_in;
	} while (!err);

	if (stacks->count > 2 * stacks->merged + 8192)
		merge(stacks);
	return 0;
}

static json_t *row_json(const struct row *row, const struct tally *tally, double unit, const struct ksyms *ksyms)
{
	json_t *frames = json_array(), *entry;

	for (uint32_t f = 0; f < row->key[DEPTH]; f++)
		json_array_append_new(frames, json_string(ksyms__name(ksyms, row->frames[f])));
	entry = json_pack("{s:s, s:s, s:s?, s:o, s:I, s:I, s:f}",
			 "side", side_names[row->key[SIDE]], "event", sample_names[row->key[EVENT]],
			 "owner", owner_names[row->key[OWNER] % OWNER_CNT],
			 "frames", frames,
			 "samples", (json_int_t)tally->samples,
			 "weight", (json_int_t)(tally->weight * unit),
			 "weight_squared", tally->weight_squared * unit * unit);
	if (entry && row->thread[0])
		json_object_set_new(entry, "thread", cells__comm_json(row->thread));
	if (entry && row->cgroup_id)
		json_object_set_new(entry, "cgroup", json_integer((json_int_t)row->cgroup_id));
	if (entry && row->key[USER_PID]) {
		json_object_set_new(entry, "pid", json_integer(row->key[USER_PID]));
		json_object_set_new(entry, "address", json_integer((json_int_t)row->address));
		json_object_set_new(entry, "back", json_integer((json_int_t)row->back));
		json_object_set_new(entry, "framed_back", json_integer((json_int_t)row->framed_back));
	}
	return entry;
}

json_t *stacks__json(struct stacks *stacks, const struct ksyms *ksyms, const struct sampler *sampler, bool only_new)
{
	json_t *array = json_array();

	merge(stacks);
	for (size_t i = 0; array && i < stacks->count; i++) {
		struct row *row = &stacks->rows[i];
		struct tally tally = row->taken;

		if (only_new) {
			tally = subtract_tally(&row->taken, &row->reported);
			row->reported = row->taken;
		}
		if (tally.samples || !only_new)
			json_array_append_new(array, row_json(row, &tally, sampler__weight_unit(sampler, row->key[EVENT]), ksyms));
	}
	return array;
}

void stacks__forget(struct stacks *stacks)
{
	for (size_t i = 0; i < stacks->count; i++)
		free(stacks->rows[i].frames);
	stacks->count = stacks->merged = 0;
}

void stacks__free(struct stacks *stacks)
{
	if (!stacks)
		return;
	stacks__forget(stacks);
	free(stacks->rows);
	free(stacks);
}
