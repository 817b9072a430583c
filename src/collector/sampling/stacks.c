// SPDX-License-Identifier: GPL-2.0
#include "stacks.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include <bpf/bpf.h>

#include "report/names.h"

/* One batch of the map: 256 KiB of values. */
#define BATCH 256

enum { EVENT, SIDE, OWNER, DEPTH, USER_PID, KEYS };

struct tally {
	uint64_t samples;
	uint64_t weight;
	uint64_t of_group[BURST_GROUPS];
};

struct row {
	struct tally taken;
	/* Of these, told as news. */
	struct tally told;
	uint32_t *frames;
	/* In user mode, of a watched program; else 0. */
	uint64_t address;
	/* In the order in which rows are told. */
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
	return memcmp(x->frames, y->frames, x->key[DEPTH] * sizeof(*x->frames));
}

static void add(struct tally *into, const struct tally *part)
{
	into->samples += part->samples;
	into->weight += part->weight;
	for (int i = 0; i < BURST_GROUPS; i++)
		into->of_group[i] += part->of_group[i];
}

static struct tally less(const struct tally *taken, const struct tally *told)
{
	struct tally rest = { .samples = taken->samples - told->samples, .weight = taken->weight - told->weight };

	for (int i = 0; i < BURST_GROUPS; i++)
		rest.of_group[i] = taken->of_group[i] - told->of_group[i];
	return rest;
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
		add(&into->taken, &row->taken);
		add(&into->told, &row->told);
		free(row->frames);
	}
	stacks->count = last + 1;
	stacks->merged = stacks->count;
}

static int add_row(struct stacks *stacks, const struct stack_cell *cell, const struct ksyms *ksyms)
{
	uint32_t depth = cell->depth < STACK_DEPTH ? cell->depth : STACK_DEPTH;
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
	*row = (struct row){ .taken = { .samples = cell->samples, .weight = cell->weight },
			     .address = cell->user_pid ? cell->frames[0] : 0,
			     .key = { cell->event, cell->side, cell->owner, depth, cell->user_pid } };
	for (int i = 0; i < BURST_GROUPS; i++)
		row->taken.of_group[i] = cell->of_group[i];
	row->frames = malloc((depth + 1) * sizeof(*row->frames));
	if (!row->frames)
		return -ENOMEM;
	/* All but the leaf are return addresses: one byte back is inside the call. */
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

/* NULL of samples that were not taken in bursts. */
static json_t *groups_json(const struct tally *tally)
{
	json_t *array = json_array();
	uint64_t in_bursts = 0;

	for (int i = 0; i < BURST_GROUPS; i++) {
		in_bursts += tally->of_group[i];
		json_array_append_new(array, json_integer((json_int_t)tally->of_group[i]));
	}
	if (in_bursts)
		return array;
	json_decref(array);
	return NULL;
}

static json_t *row_json(const struct row *row, const struct tally *tally, const struct ksyms *ksyms, const double *scales)
{
	double scaled = tally->weight * (row->key[EVENT] == SAMPLE_CPU_CLOCK ? scales[row->key[SIDE]] : 1);
	json_t *frames = json_array(), *made;

	for (uint32_t f = 0; f < row->key[DEPTH]; f++)
		json_array_append_new(frames, json_string(ksyms__name(ksyms, row->frames[f])));
	made = json_pack("{s:s, s:s, s:s?, s:o, s:I, s:I, s:o*}",
			 "side", side_names[row->key[SIDE]], "event", sample_names[row->key[EVENT]],
			 "owner", owner_names[row->key[OWNER] % OWNER_CNT],
			 "frames", frames,
			 "samples", (json_int_t)tally->samples,
			 "weight", (json_int_t)(scaled + 0.5),
			 "samples_of_group", groups_json(tally));
	if (made && row->key[USER_PID]) {
		json_object_set_new(made, "pid", json_integer(row->key[USER_PID]));
		json_object_set_new(made, "address", json_integer((json_int_t)row->address));
	}
	return made;
}

json_t *stacks__json(struct stacks *stacks, const struct ksyms *ksyms, const double *scales, bool news)
{
	json_t *array = json_array();

	merge(stacks);
	for (size_t i = 0; array && i < stacks->count; i++) {
		struct row *row = &stacks->rows[i];
		struct tally tally = row->taken;

		if (news) {
			tally = less(&row->taken, &row->told);
			row->told = row->taken;
		}
		if (tally.samples || !news)
			json_array_append_new(array, row_json(row, &tally, ksyms, scales));
	}
	return array;
}

void stacks__free(struct stacks *stacks)
{
	if (!stacks)
		return;
	for (size_t i = 0; i < stacks->count; i++)
		free(stacks->rows[i].frames);
	free(stacks->rows);
	free(stacks);
}
