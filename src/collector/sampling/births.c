// SPDX-License-Identifier: GPL-2.0
#include "births.h"

#include <bpf/bpf.h>

#include "report/maps.h"

static void note(void *context, const void *tid, const void *birth)
{
	struct births *births = context;

	if (births->count == BIRTHS_MAX)
		return;
	births->taken[births->count].tid = *(const __u32 *)tid;
	births->taken[births->count++].birth = *(const __u32 *)birth;
}

void births__take(struct births *births)
{
	/* Before the map: what is noted while it is read is taken the next time. */
	__u32 noted = __atomic_load_n(births->map.noted, __ATOMIC_RELAXED);

	births->count = 0;
	if (noted == births->seen)
		return;
	births->seen = noted;
	maps__each(births->map.fd, sizeof(__u32), sizeof(__u32), note, births);
	for (size_t i = 0; i < births->count; i++)
		bpf_map_delete_elem(births->map.fd, &births->taken[i].tid);
}

static void want(struct births *births, enum births_wanted wanted)
{
	__atomic_store_n(births->map.wanted, wanted, __ATOMIC_SEQ_CST);
}

void births__begin(struct births *births, bool kept)
{
	if (!kept) {
		births__take(births);
		births__lost(births);
	}
	want(births, BIRTHS_ALL);
}

void births__opened(struct births *births)
{
	want(births, BIRTHS_UNTIMED);
}

void births__end(struct births *births)
{
	want(births, BIRTHS_NONE);
}

bool births__inherited(struct births *births, pid_t tid)
{
	__u32 birth;

	/* To look it up is a system call: most programs start no thread meanwhile. */
	if (__atomic_load_n(births->map.noted, __ATOMIC_RELAXED) == births->seen)
		return false;
	if (bpf_map_lookup_elem(births->map.fd, &tid, &birth) || bpf_map_delete_elem(births->map.fd, &tid))
		return false;
	return birth == BIRTH_TIMED;
}

unsigned int births__lost(struct births *births)
{
	__u32 lost = __atomic_load_n(births->map.lost, __ATOMIC_RELAXED), since = lost - births->lost;

	births->lost = lost;
	return since;
}
