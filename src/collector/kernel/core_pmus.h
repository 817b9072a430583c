/* SPDX-License-Identifier: GPL-2.0-only */
/* core_pmus.h - online CPUs and their PMUs. Each type of core has its own PMU. */
#ifndef COLLECTOR_CORE_PMUS_H
#define COLLECTOR_CORE_PMUS_H

#include <stdbool.h>

#include <linux/types.h>

#define CORE_PMUS_MAX 16

struct core_pmu {
	char name[64];
	__u32 type;
	/* List of the online CPUs of this PMU, such as 0-11,14. */
	char *cpus;
};

struct core_pmus {
	/* PMUs that list their CPUs, on machines with several types of cores and on arm64. */
	struct core_pmu all[CORE_PMUS_MAX];
	int count;
	/* The machine has one PMU for all CPUs. This PMU does not list its CPUs. */
	bool plain;
	/* List of all online CPUs; NULL if unknown. */
	char *online;
	/* List of the CPUs on which no events are sampled; NULL if there are none. */
	char *spared;
	/* x86: vendor, family and model from /proc/cpuinfo. */
	char vendor[16];
	int family;
	int model;
};

/* Prefix of /sys and /proc. Tests set it to simulate other machines. */
extern const char *core_pmus_root;

/* Return the PMUs of this machine. The first call reads them. */
const struct core_pmus *core_pmus__here(void);
/* Return true if the CPU is online, or if the online CPUs are unknown. */
bool core_pmus__is_online(const struct core_pmus *pmus, int cpu);
/* Set the CPUs on which no events are sampled, such as 2-3,6. An empty list excludes none. Return 0 or -ENOMEM. */
int core_pmus__spare(const char *cpus);
bool core_pmus__is_spared(const struct core_pmus *pmus, int cpu);
/* Return the PMU that lists this CPU, or NULL. */
const struct core_pmu *core_pmus__of(const struct core_pmus *pmus, int cpu);
/* Return the number of listed PMUs that have an online CPU. */
int core_pmus__types(const struct core_pmus *pmus);
/* Return true for AMD Zen 2 and later. */
bool core_pmus__zen(const struct core_pmus *pmus);
/* Discard the result, so that the next call reads the machine again. For tests. */
void core_pmus__forget(void);

#endif
