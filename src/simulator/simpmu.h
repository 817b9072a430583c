/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SIMULATOR_SIMPMU_H
#define SIMULATOR_SIMPMU_H

/*
 * Memory that the plugin and a PMU's driver in the guest share (BAR 2 of an ivshmem device; tests/pmu/simpmu.c). The plugin adds
 * to counts, the driver reads them and sets limits. When a count has come to its limit, the plugin rings: MSI-X vector = CPU.
 */
#define SIMPMU_MAGIC 0x756d706d6973ull
#define SIMPMU_BYTES (1u << 20)
#define SIMPMU_CPUS 8

enum simpmu_column {
	SIMPMU_CYCLES, SIMPMU_INSTRUCTIONS, SIMPMU_L1D_LOAD_MISSES, SIMPMU_L1D_STORE_MISSES, SIMPMU_L2_LOAD_MISSES,
	SIMPMU_L2_STORE_MISSES, SIMPMU_LLC_LOAD_MISSES, SIMPMU_LLC_STORE_MISSES, SIMPMU_COLUMNS
};

/* A model of time: an instruction takes a cycle, a miss so many more. */
#define SIMPMU_L1D_MISS_CYCLES 14
#define SIMPMU_L2_MISS_CYCLES 36
#define SIMPMU_LLC_MISS_CYCLES 150

struct simpmu_cpu {
	unsigned long long count[SIMPMU_COLUMNS];
	unsigned long long limit[SIMPMU_COLUMNS];	/* 0: none; the plugin removes it as it rings */
	unsigned long long rung;			/* by the plugin; the driver takes it back */
	unsigned long long frozen;			/* by the driver: nothing is added */
	unsigned long long active;			/* by the driver: an event of this whole CPU counts, or one samples */
	unsigned long long late;			/* bells that QEMU did not hear in time */
	unsigned long long unused[4];
};

struct simpmu_memory {
	unsigned long long magic;
	unsigned long long always;			/* by the driver: all CPUs are active */
	unsigned long long running;			/* by the plugin: it counts; until then the driver goes by the TSC */
	unsigned long long unused[5];
	struct simpmu_cpu cpus[SIMPMU_CPUS];
};

#endif
