/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SIMULATOR_VCPU_H
#define SIMULATOR_VCPU_H

#include "qemu_abi.h"

/*
 * Determines the running vCPU. From 9.0 on, if all vCPUs share a thread, QEMU passes the number of the vCPU that
 * translated the block (gen_cpu_index() in accel/tcg/plugin-gen.c). The GS base then identifies the vCPU, because Linux
 * uses a different GS base on each CPU.
 */
#if QEMU_API < 2
#define VCPU_CB_FLAGS QEMU_PLUGIN_CB_NO_REGS
#define VCPU_HAS_REGISTERS 0

static inline void vcpu__watch(qemu_plugin_id_t id)
{
	(void)id;
}

static inline unsigned int vcpu__now(unsigned int reported)
{
	return reported;
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
unsigned int vcpu__now(unsigned int reported);
/* Return a general register, by its number in instructions. */
uint64_t vcpu__register(unsigned int number);
#endif

enum { RCX = 1, RDX = 2, RSI = 6, RDI = 7 };

#endif
