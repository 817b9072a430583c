// SPDX-License-Identifier: GPL-2.0-only
/* Tests of vcpu.h, which finds the running vCPU by its registers, because QEMU may pass a different index. */
#include <stddef.h>
#include <string.h>

#define QEMU_API 4
#include "../../src/simulator/vcpu.c"
#include "check.h"

static uint64_t registers[4];	/* rip, gs_base, k_gs_base, rdx */
static uint8_t bytes[8];
static GByteArray array = { bytes, 0 };
static qemu_plugin_vcpu_init_cb_t vcpu_is_there;

GByteArray *g_byte_array_new(void)
{
	return &array;
}

GByteArray *g_byte_array_set_size(GByteArray *of, unsigned int size)
{
	of->len = size;
	return of;
}

/* Behave like QEMU 10.2 and newer. */
struct descriptor {
	qemu_plugin_reg_descriptor known;
	bool is_readonly;
};

unsigned int g_array_get_element_size(GArray *of)
{
	(void)of;
	return sizeof(struct descriptor);
}

char *g_array_free(GArray *of, int free_segment)
{
	(void)free_segment;
	of->len = 0;
	return NULL;
}

void qemu_plugin_register_vcpu_init_cb(qemu_plugin_id_t id, qemu_plugin_vcpu_init_cb_t callback)
{
	(void)id;
	vcpu_is_there = callback;
}

GArray *qemu_plugin_get_registers(void)
{
	static struct descriptor list[] = {
		{ { (void *)&registers[0], "rip", "" }, true }, { { (void *)&registers[1], "gs_base", "" }, true },
		{ { (void *)&registers[2], "k_gs_base", "" }, true }, { { (void *)&registers[3], "rdx", "" }, true },
	};
	static GArray all;

	all = (GArray){ (char *)list, 4 };
	return &all;
}

int qemu_plugin_read_register(struct qemu_plugin_register *handle, GByteArray *to)
{
	memcpy(to->data, handle, 8);
	to->len = 8;
	return 8;
}

static unsigned int now(uint64_t base, uint64_t other)
{
	registers[1] = base;
	registers[2] = other;
	/* QEMU always passes index 0. */
	return vcpu__now(0);
}

TEST("vCPUs: the base of GS tells which one runs")
{
	const uint64_t first = 0xffff88801f200000, second = 0xffff88801f300000;

	vcpu__watch(1);
	vcpu_is_there(1, 0);
	vcpu_is_there(1, 1);
	/* The kernel has not set the register yet. */
	CHECK_EQUAL(now(0, 0), 0);
	CHECK_EQUAL(now(first, 0), 0);
	CHECK_EQUAL(now(second, 0), 1);
	/* In user mode the kernel's base is in the other register, until swapgs. */
	CHECK_EQUAL(now(0, second), 1);
	CHECK_EQUAL(now(0x7f0000001000, first), 0);
	CHECK_EQUAL(now(second, 0x7f0000001000), 1);
	/* Bases of vCPUs with numbers above the number of cores in the model. */
	for (uint64_t i = 0; i < 10; i++)
		CHECK(now(0xffff888020000000 + (i << 20), 0) < CORES_MAX);
	CHECK_EQUAL(now(second, 0), 1);
	registers[3] = 1536;
	CHECK_EQUAL(vcpu__register(RDX), 1536);
	/* QEMU does not provide this register. */
	CHECK_EQUAL(vcpu__register(RDI), 0);
}
