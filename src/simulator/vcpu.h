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

static inline void vcpu__watch(qemu_plugin_id_t id)
{
	(void)id;
}

static inline unsigned int vcpu__now(unsigned int said)
{
	return said;
}
#else
#define VCPU_CB_FLAGS QEMU_PLUGIN_CB_R_REGS

void vcpu__watch(qemu_plugin_id_t id);
unsigned int vcpu__now(unsigned int said);
#endif

#endif
