// SPDX-License-Identifier: GPL-2.0-only
#include "cache.h"
#include "vcpu.h"

#if QEMU_API >= 2
#include <string.h>

#define KERNEL_BIT 63

/* General registers by their numbers in instructions, then two more. */
enum { GS_BASE = 16, KERNEL_GS_BASE, REGISTER_CNT };
static const char *const names[REGISTER_CNT] = {
	"rax", "rcx", "rdx", "rbx", "rsp", "rbp", "rsi", "rdi",
	"r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "gs_base", "k_gs_base",
};
static struct qemu_plugin_register *handles[REGISTER_CNT];
static GByteArray *value;
static uint64_t bases[CORES_MAX];	/* GS bases, in the order of their first use */
static unsigned int base_count;

/* The handles are the same for all vCPUs, but only a running vCPU can query them. */
static void on_vcpu(QEMU_ID_FIRST unsigned int vcpu QEMU_DATA_LAST)
{
	GArray *registers;

	if (vcpu)
		return;
	registers = qemu_plugin_get_registers();
	for (unsigned int i = 0; i < registers->len; i++) {
		const char *at = registers->data + (size_t)i * g_array_get_element_size(registers);
		const qemu_plugin_reg_descriptor *descriptor = (const void *)at;

		for (unsigned int name = 0; name < REGISTER_CNT; name++)
			if (!strcmp(descriptor->name, names[name]))
				handles[name] = descriptor->handle;
	}
	g_array_free(registers, 1);
}

void vcpu__watch(qemu_plugin_id_t id)
{
	value = g_byte_array_new();
	qemu_plugin_register_vcpu_init_cb(id, on_vcpu QEMU_NO_DATA);
}

static uint64_t read_register(unsigned int index)
{
	uint64_t bits = 0;

	g_byte_array_set_size(value, 0);
	if (handles[index])
		qemu_plugin_read_register(handles[index], value);
	if (value->len == sizeof(bits))
		memcpy(&bits, value->data, sizeof(bits));
	return bits;
}

uint64_t vcpu__register(unsigned int number)
{
	return read_register(number);
}

unsigned int vcpu__now(unsigned int reported)
{
	/* In user mode, and until swapgs, the other GS base is the kernel's. */
	uint64_t base = read_register(GS_BASE);

	if (!(base >> KERNEL_BIT))
		base = read_register(KERNEL_GS_BASE);
	if (!(base >> KERNEL_BIT))
		return reported;
	for (unsigned int i = 0; i < base_count; i++)
		if (bases[i] == base)
			return i;
	if (base_count == CORES_MAX)
		return reported;
	bases[base_count] = base;
	return base_count++;
}
#endif
