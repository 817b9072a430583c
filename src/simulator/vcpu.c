// SPDX-License-Identifier: GPL-2.0
#include "cache.h"
#include "vcpu.h"

#if QEMU_API >= 2
#include <string.h>

#define KERNEL_BIT 63

static struct qemu_plugin_register *gs_base, *kernel_gs_base;
static GByteArray *value;
static uint64_t bases[CORES_MAX];	/* in the order in which they came */
static unsigned int base_count;

/* The handles are the same for all vCPUs, and only one that runs may ask for them. */
static void on_vcpu(qemu_plugin_id_t id, unsigned int vcpu)
{
	GArray *registers;

	(void)id;
	if (vcpu)
		return;
	registers = qemu_plugin_get_registers();
	for (unsigned int i = 0; i < registers->len; i++) {
		const qemu_plugin_reg_descriptor *found = &((qemu_plugin_reg_descriptor *)registers->data)[i];

		if (!strcmp(found->name, "gs_base"))
			gs_base = found->handle;
		if (!strcmp(found->name, "k_gs_base"))
			kernel_gs_base = found->handle;
	}
	g_array_free(registers, 1);
}

void vcpu__watch(qemu_plugin_id_t id)
{
	value = g_byte_array_new();
	qemu_plugin_register_vcpu_init_cb(id, on_vcpu);
}

static uint64_t read_base(struct qemu_plugin_register *handle)
{
	uint64_t base = 0;

	g_byte_array_set_size(value, 0);
	if (handle)
		qemu_plugin_read_register(handle, value);
	if (value->len == sizeof(base))
		memcpy(&base, value->data, sizeof(base));
	return base;
}

unsigned int vcpu__now(unsigned int said)
{
	/* In user mode, and until swapgs, the kernel's is the other one. */
	uint64_t base = read_base(gs_base);

	if (!(base >> KERNEL_BIT))
		base = read_base(kernel_gs_base);
	if (!(base >> KERNEL_BIT))
		return said;
	for (unsigned int i = 0; i < base_count; i++)
		if (bases[i] == base)
			return i;
	if (base_count == CORES_MAX)
		return said;
	bases[base_count] = base;
	return base_count++;
}
#endif
