// SPDX-License-Identifier: GPL-2.0-only
#include "cells.h"

#include <stdlib.h>
#include <string.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <copyscope.skel.h>

#include "maps.h"
#include "names.h"

json_t *cells__bytes_json(const struct copyscope *skel)
{
	json_t *array = json_array();

	for (__u32 index = 0; index < BYTES_CNT * SIDE_TARGETS; index++) {
		struct byte_cell sum = {};

		if (!maps__sum(skel->maps.byte_cells, index, &sum, sizeof(sum)))
			continue;
		json_array_append_new(array, json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I}",
						       "side", side_names[index % SIDE_TARGETS],
						       "hook", byte_hook_names[index / SIDE_TARGETS],
						       "calls", (json_int_t)sum.calls,
						       "bytes", (json_int_t)sum.bytes,
						       "zerocopy_calls", (json_int_t)sum.zerocopy_calls,
						       "zerocopy_bytes", (json_int_t)sum.zerocopy_bytes,
						       "spliced_calls", (json_int_t)sum.spliced_calls,
						       "spliced_bytes", (json_int_t)sum.spliced_bytes));
	}
	return array;
}

json_t *cells__comm_json(const void *comm)
{
	char name[WATCH_COMM];

	memcpy(name, comm, sizeof(name));
	name[sizeof(name) - 1] = 0;
	for (char *c = name; *c; c++)
		if (*c < ' ' || *c > '~')
			*c = '?';
	return json_string(name);
}

/* Return the shortest duration in ns that a slot counts: the inverse of histogram_slot() in histogram.bpf.h. */
static json_int_t slot_low_ns(int slot)
{
	int octave = slot / HIST_SUB;

	if (octave == 0)
		return slot;
	return (json_int_t)(HIST_SUB + slot % HIST_SUB) << (octave - 1);
}

json_t *cells__histogram_json(const __u64 *slots)
{
	json_t *buckets = json_array();

	for (int slot = 0; slot < HIST_SLOTS; slot++)
		if (slots[slot])
			json_array_append_new(buckets, json_pack("[I, I, I]", slot_low_ns(slot),
								 slot_low_ns(slot + 1),
								 (json_int_t)slots[slot]));
	return json_pack("{s:s, s:o}", "unit", "ns", "buckets", buckets);
}

/* Return null if no call was timed, because then the durations of all calls are unknown. */
static json_t *total_json(const struct call_cell *sum, enum call_time time, double scale)
{
	return sum->timed ? json_integer(sum->total_ns[time] * scale + 0.5) : json_null();
}

static json_t *call_json(__u32 index, const struct call_cell *cells, int cpus)
{
	__u64 histogram[HIST_SLOTS] = {};
	struct call_cell sum = {};
	double scale;

	for (int cpu = 0; cpu < cpus; cpu++) {
		sum.calls += cells[cpu].calls;
		sum.bytes += cells[cpu].bytes;
		sum.timed += cells[cpu].timed;
		if (cells[cpu].largest_bytes > sum.largest_bytes)
			sum.largest_bytes = cells[cpu].largest_bytes;
		sum.failed += cells[cpu].failed;
		/* Report the last errno of any CPU on which calls failed. */
		if (cells[cpu].failed)
			sum.last_errno = cells[cpu].last_errno;
		for (int time = 0; time < TIME_CNT; time++)
			sum.total_ns[time] += cells[cpu].total_ns[time];
		for (int slot = 0; slot < HIST_SLOTS; slot++)
			histogram[slot] += cells[cpu].histogram[slot];
	}
	if (!sum.calls)
		return NULL;
	/* Some calls began before the programs were attached and were not timed: scale the times to all calls. */
	scale = sum.timed ? (double)sum.calls / sum.timed : 0;
	return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:o, s:I, s:o, s:o, s:o, s:o}",
			 "side", side_names[index / CALL_CNT],
			 "syscall", call_names[index % CALL_CNT],
			 "calls", (json_int_t)sum.calls,
			 "bytes", (json_int_t)sum.bytes,
			 "largest_bytes", (json_int_t)sum.largest_bytes,
			 "failed_calls", (json_int_t)sum.failed,
			 "last_errno", sum.failed ? json_integer(sum.last_errno) : json_null(),
			 "timed_calls", (json_int_t)sum.timed,
			 "on_cpu_ns", total_json(&sum, TIME_ON_CPU, scale),
			 "softirq_ns", total_json(&sum, TIME_SOFTIRQ, scale),
			 "blocked_ns", total_json(&sum, TIME_BLOCKED, scale),
			 "histogram", cells__histogram_json(histogram));
}

json_t *cells__calls_json(const struct copyscope *skel)
{
	int cpus = libbpf_num_possible_cpus();
	struct call_cell *cells = calloc(cpus, sizeof(*cells));
	json_t *array = json_array();

	for (__u32 index = 0; index < CALL_CNT * SIDE_TARGETS; index++) {
		if (maps__cells(bpf_map__fd(skel->maps.call_cells), index, cells))
			/* json_array_append_new() ignores NULL. */
			json_array_append_new(array, call_json(index, cells, cpus));
	}
	free(cells);
	return array;
}
