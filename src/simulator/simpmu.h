/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SIMULATOR_SIMPMU_H
#define SIMULATOR_SIMPMU_H

/*
 * Memory that the plugin shares with the driver of a simulated PMU in the guest (BAR 2 of an ivshmem device;
 * tests/pmu/simpmu.c). The plugin increments counters; the driver reads them and sets limits. When a counter reaches
 * its limit, the plugin has QEMU interrupt the CPU (ivshmem doorbell): the MSI-X vector is the CPU number.
 */
#define SIMPMU_MAGIC 0x756d706d6973ull
#define SIMPMU_BYTES (1u << 20)
#define SIMPMU_CPUS 8

enum simpmu_column {
	SIMPMU_CYCLES, SIMPMU_INSTRUCTIONS, SIMPMU_L1D_LOAD_MISSES, SIMPMU_L1D_STORE_MISSES, SIMPMU_L2_LOAD_MISSES,
	SIMPMU_L2_STORE_MISSES, SIMPMU_LLC_LOAD_MISSES, SIMPMU_LLC_STORE_MISSES, SIMPMU_COLUMNS
};

/* A simple model of time: an instruction takes one cycle, and a miss takes this many more. */
#define SIMPMU_L1D_MISS_CYCLES 14
#define SIMPMU_L2_MISS_CYCLES 36
#define SIMPMU_LLC_MISS_CYCLES 150

struct simpmu_cpu {
	unsigned long long count[SIMPMU_COLUMNS];
	unsigned long long limit[SIMPMU_COLUMNS];	/* interrupt at this count; 0: never; cleared by the plugin when it interrupts */
	unsigned long long rung;			/* set by the plugin when it interrupts, cleared by the driver */
	unsigned long long frozen;			/* set by the driver: counters stand still */
	unsigned long long active;			/* set by the driver: an event counts or samples on this CPU */
	unsigned long long late;			/* interrupts that QEMU did not raise in time */
	unsigned long long unused[4];
};

struct simpmu_memory {
	unsigned long long magic;
	unsigned long long always;			/* set by the driver: all CPUs are active */
	unsigned long long running;			/* set by the plugin while it counts; until then the driver uses the TSC */
	unsigned long long unused[5];
	struct simpmu_cpu cpus[SIMPMU_CPUS];
};

#endif
