/* SPDX-License-Identifier: GPL-2.0 */
/* core_pmus.h - which CPUs are online, and which PMU each of them has: one for each type of core. */
#ifndef COLLECTOR_CORE_PMUS_H
#define COLLECTOR_CORE_PMUS_H

#include <stdbool.h>

#include <linux/types.h>

#define CORE_PMUS_MAX 16

struct core_pmu {
	char name[64];
	__u32 type;
	/* Such as 0-11,14; without those that are offline. */
	char *cpus;
};

struct core_pmus {
	/* Those that say which CPUs they are of: on machines with several types of cores, and on arm64. */
	struct core_pmu all[CORE_PMUS_MAX];
	int count;
	/* One of all CPUs, which does not say so. */
	bool plain;
	/* NULL: not known. */
	char *online;
	/* x86: of /proc/cpuinfo. */
	char vendor[16];
	int family;
	int model;
};

/* In front of /sys and /proc: tests make machines of their own. */
extern const char *core_pmus_root;

/* Of this machine: read when it is asked for the first time. */
const struct core_pmus *core_pmus__here(void);
/* Also true where nobody says. */
bool core_pmus__is_online(const struct core_pmus *pmus, int cpu);
/* NULL: none that says so. */
const struct core_pmu *core_pmus__of(const struct core_pmus *pmus, int cpu);
/* How many of them have a CPU. */
int core_pmus__types(const struct core_pmus *pmus);
/* AMD's Zen 2 and later. */
bool core_pmus__zen(const struct core_pmus *pmus);
/* It is read again when it is asked for: tests change machines. */
void core_pmus__forget(void);

#endif
