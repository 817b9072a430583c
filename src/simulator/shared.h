/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SIMULATOR_SHARED_H
#define SIMULATOR_SHARED_H

#include <stdbool.h>

#include "cache.h"
#include "simpmu.h"

/*
 * Counters that a guest reads while it runs, in memory that a PMU's driver there knows (simpmu.h), and bells: eventfds of which
 * QEMU makes interrupts (ivshmem-doorbell). Without such memory nobody reads, and everything counts.
 */
struct shared {
	struct simpmu_memory *memory;	/* NULL: there is none */
	int bells[CORES_MAX];		/* 0: none */
	bool due;			/* one is to be rung */
	unsigned int awaits[CORES_MAX];	/* before so many blocks more an interrupt is waited for */
};

/* 0 or -errno. */
int shared__open(struct shared *shared, const char *path, const int bells[CORES_MAX]);
void shared__close(struct shared *shared);
/* A limit was reached: returns when QEMU can interrupt this core before its next block. */
void shared__ring(struct shared *shared, unsigned int core);
/* Before a block: a busy host may not have interrupted this core yet. `interrupted`: it has, here. */
void shared__await(struct shared *shared, unsigned int core, bool interrupted);
/* Whether what any core does is counted now. */
bool shared__any_active(const struct shared *shared, unsigned int cores);

/* Whether what this core does is counted now. */
static inline bool shared__is_active(const struct shared *shared, unsigned int core)
{
	const struct simpmu_memory *memory = shared->memory;

	return !memory || (!memory->cpus[core].frozen && (memory->always || memory->cpus[core].active));
}

static inline void shared__add(struct shared *shared, unsigned int core, enum simpmu_column column, unsigned int number)
{
	volatile struct simpmu_cpu *cpu = &shared->memory->cpus[core];

	cpu->count[column] += number;
	if (cpu->limit[column] && cpu->count[column] >= cpu->limit[column]) {
		cpu->limit[column] = 0;
		/* One interrupt is enough for all limits that are reached until it is taken. */
		shared->due |= !cpu->rung;
		cpu->rung = 1;
	}
}

static inline void shared__instructions(struct shared *shared, unsigned int core, unsigned int number)
{
	if (!shared->memory || shared->memory->cpus[core].frozen)
		return;
	shared__add(shared, core, SIMPMU_INSTRUCTIONS, number);
	shared__add(shared, core, SIMPMU_CYCLES, number);
}

/* `result`: of hierarchy__access(), not 0. */
static inline void shared__misses(struct shared *shared, unsigned int core, unsigned int result, bool write)
{
	if (!shared->memory || shared->memory->cpus[core].frozen)
		return;
	shared__add(shared, core, SIMPMU_L1D_LOAD_MISSES + write, 1);
	shared__add(shared, core, SIMPMU_CYCLES, SIMPMU_L1D_MISS_CYCLES);
	if (result & ACCESS_L2_MISS) {
		shared__add(shared, core, SIMPMU_L2_LOAD_MISSES + write, 1);
		shared__add(shared, core, SIMPMU_CYCLES, SIMPMU_L2_MISS_CYCLES);
	}
	if (result & ACCESS_LLC_MISS) {
		shared__add(shared, core, SIMPMU_LLC_LOAD_MISSES + write, 1);
		shared__add(shared, core, SIMPMU_CYCLES, SIMPMU_LLC_MISS_CYCLES);
	}
}

#endif
