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
#define VCPU_HAS_REGISTERS 0

static inline void vcpu__watch(qemu_plugin_id_t id)
{
	(void)id;
}

static inline unsigned int vcpu__now(unsigned int said)
{
	return said;
}

static inline uint64_t vcpu__register(unsigned int number)
{
	(void)number;
	return 0;
}
#else
#define VCPU_CB_FLAGS QEMU_PLUGIN_CB_R_REGS
#define VCPU_HAS_REGISTERS 1

void vcpu__watch(qemu_plugin_id_t id);
unsigned int vcpu__now(unsigned int said);
/* A general one, by its number in instructions. */
uint64_t vcpu__register(unsigned int number);
#endif

enum { RCX = 1, RDX = 2, RSI = 6, RDI = 7 };

#endif
