/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SIMULATOR_VCPU_H
#define SIMULATOR_VCPU_H

#include "qemu_abi.h"

/*
 * Which vCPU runs. From 9.0 on QEMU passes the one that translated the block, where all share a thread
 * (gen_cpu_index() in accel/tcg/plugin-gen.c): then the GS base tells, which Linux has another one of for each CPU.
 */
#if QEMU_API < 2
#define VCPU_CB_FLAGS QEMU_PLUGIN_CB_NO_REGS
#define VCPU_HAS_ARGUMENTS 0

static inline void vcpu__watch(qemu_plugin_id_t id)
{
	(void)id;
}

static inline unsigned int vcpu__now(unsigned int said)
{
	return said;
}

static inline uint64_t vcpu__argument(unsigned int index)
{
	(void)index;
	return 0;
}
#else
#define VCPU_CB_FLAGS QEMU_PLUGIN_CB_R_REGS
#define VCPU_HAS_ARGUMENTS 1

void vcpu__watch(qemu_plugin_id_t id);
unsigned int vcpu__now(unsigned int said);
/* Of the function whose first instruction comes next: 0 to 3. */
uint64_t vcpu__argument(unsigned int index);
#endif

#endif
