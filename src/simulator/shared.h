/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SIMULATOR_SHARED_H
#define SIMULATOR_SHARED_H

#include <stdbool.h>

#include "cache.h"
#include "simpmu.h"

/*
 * Counters that a guest reads while it runs, in memory that the driver of a simulated PMU uses (simpmu.h), and bells:
 * eventfds that QEMU turns into interrupts (ivshmem-doorbell). Without this memory there is no reader, and everything
 * counts.
 */
struct shared {
	struct simpmu_memory *memory;	/* NULL: no guest reads the counters */
	int bells[CORES_MAX];		/* bell of each core: an eventfd that makes QEMU interrupt the core; 0: none */
	bool due;			/* QEMU must interrupt a core: the bell of the core is to be written */
	unsigned int awaits[CORES_MAX];	/* number of further blocks that wait for an interrupt */
};

/* Map the memory. Return 0 or -errno. */
int shared__open(struct shared *shared, const char *path, const int bells[CORES_MAX]);
void shared__close(struct shared *shared);
/* A counter reached its limit. Return once QEMU can interrupt this core before its next block. */
void shared__ring(struct shared *shared, unsigned int core);
/*
 * Call before a block: on a busy host QEMU may not have interrupted this core yet. interrupted: this block handles
 * the interrupt.
 */
void shared__await(struct shared *shared, unsigned int core, bool interrupted);
/* Return true if any core is being counted. */
bool shared__any_active(const struct shared *shared, unsigned int cores);

/* Return true if this core is being counted. */
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
		/* One interrupt serves all limits that are reached before it is handled. */
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

/* `result`: nonzero result of hierarchy__access(). */
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
