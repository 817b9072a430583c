// SPDX-License-Identifier: GPL-2.0-only
/*
 * TCG plugin that connects QEMU with the simulated machine. QEMU must run all vCPUs in one thread (-accel
 * tcg,thread=single). Until the traffic executes its first marker, the plugin looks only for markers.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "machine.h"
#include "qemu_abi.h"
#include "report.h"
#include "vcpu.h"
#include "../traffic/marker.h"

QEMU_EXPORT int qemu_plugin_version = QEMU_API;

#define BLOCK_INSNS_MAX 1024
#define INSN_BYTES_MAX 16
#define QUIET_BLOCKS 3000000

static struct {
	qemu_plugin_id_t id;
	struct model model;
	struct machine machine;
	struct symbols symbols;
	FILE *out;
	unsigned int core;		/* core that runs the current block */
	unsigned int measurements;
	bool instrumented, running, failed;
	bool awaiting;			/* counting starts with the first byte that is sent */
	bool counted;			/* a guest reads the counters (shared.h) */
	unsigned int quiet;		/* blocks since sender or receiver last executed a marker */
} simulator;

/*
 * Parts of the kernel's address space that map physical memory linearly, if they are at their addresses without
 * KASLR.
 */
static struct {
	uint64_t begin, bytes, physical;
	enum { NOT_TRIED, LINEAR, NOT_LINEAR } state;
} linear[] = {
	{ .begin = 0xffff888000000000, .bytes = 1ull << 46 },	/* page_offset_base */
	{ .begin = 0xff11000000000000, .bytes = 1ull << 55 },	/* page_offset_base with five-level page tables */
	{ .begin = 0xffffffff80000000, .bytes = 1ull << 30 },	/* kernel image */
};

static uint64_t query_qemu(qemu_plugin_meminfo_t info, uint64_t address)
{
	const struct qemu_plugin_hwaddr *where = qemu_plugin_get_hwaddr(info, address);

	if (!where)
		simulator.machine.lost_accesses++;
	return !where || qemu_plugin_hwaddr_is_io(where) ? NO_ADDRESS : qemu_plugin_hwaddr_phys_addr(where);
}

static uint64_t physical_of(qemu_plugin_meminfo_t info, uint64_t address)
{
	struct pages *pages = &simulator.machine.cores[simulator.core].pages;
	uint64_t physical;

	for (size_t i = 0; i < sizeof(linear) / sizeof(*linear); i++) {
		uint64_t distance = address - linear[i].begin;

		if (distance >= linear[i].bytes || linear[i].state == NOT_LINEAR)
			continue;
		if (linear[i].state == LINEAR)
			return distance;
		physical = query_qemu(info, address);
		linear[i].state = physical == distance ? LINEAR : NOT_LINEAR;
		return physical;
	}
	if (pages__find(pages, address, &physical))
		return physical;
	physical = query_qemu(info, address);
	if (physical != NO_ADDRESS)
		pages__keep(pages, address, physical);
	return physical;
}

static void ring_if_due(void)
{
	if (simulator.machine.shared.due)
		shared__ring(&simulator.machine.shared, simulator.core);
}

static void on_access(unsigned int vcpu, qemu_plugin_meminfo_t info, uint64_t address, void *kind)
{
	struct access access = {
		.address = address, .bytes = 1u << qemu_plugin_mem_size_shift(info),
		.write = qemu_plugin_mem_is_store(info), .kind = (enum insn_kind)(uintptr_t)kind,
	};

	(void)vcpu;
	if (!simulator.running || !simulator.counted || machine__repeat(&simulator.machine, simulator.core, &access))
		return;
	access.physical = physical_of(info, address);
	machine__access(&simulator.machine, simulator.core, &access);
	ring_if_due();
}

/* enum dma_data_direction of the kernel */
enum { DMA_BIDIRECTIONAL, DMA_TO_DEVICE, DMA_FROM_DEVICE };
#define DMA_BYTES_MAX (1u << 20)

static void handle_device_write(void)
{
	/* Second to fourth argument (System V ABI). */
	uint64_t address = vcpu__register(RSI), bytes = vcpu__register(RDX), direction = vcpu__register(RCX);

	if ((uint32_t)direction == DMA_TO_DEVICE || bytes > DMA_BYTES_MAX)
		return;
	machine__device_write(&simulator.machine, address, bytes, simulator.model.ddio == DDIO_ON);
}

static void restart_counts(void)
{
	simulator.awaiting = false;
	stacks__zero_counts(&simulator.machine.stacks);
	simulator.machine.lost_accesses = 0;
}

/*
 * Return true if a guest reads the counters. Counters may stay on for seconds after the traffic, while hooks are
 * detached; that time is not counted. When counting restarts, the cores' knowledge of tasks is outdated.
 */
static bool is_counted(void)
{
	const struct shared *shared = &simulator.machine.shared;
	bool counted = shared__any_active(shared, simulator.model.caches.cores);

	if (shared->memory && !shared->memory->always && ++simulator.quiet > QUIET_BLOCKS)
		counted = false;
	if (counted && !simulator.counted)
		machine__begin(&simulator.machine);
	simulator.counted = counted;
	return counted;
}

static void on_block(unsigned int vcpu, void *userdata)
{
	const struct block *block = userdata;

	if (!simulator.running || !is_counted())
		return;
	simulator.core = vcpu__now(vcpu);
	shared__await(&simulator.machine.shared, simulator.core, block->kind == BLOCK_NMI);
	if (block->sends && simulator.awaiting)
		restart_counts();
	if (block->device_done && simulator.model.ddio != DDIO_UNSEEN)
		handle_device_write();
	machine__execute(&simulator.machine, simulator.core, block);
	ring_if_due();
}

/*
 * An instruction that invalidates translations, packed into one word: its kind, and above that 1 + the register with
 * the page's address, or 0.
 */
#define FLUSH_PAGE_SHIFT 8

static void on_flush(unsigned int vcpu, void *packed)
{
	enum insn_kind kind = (uintptr_t)packed & ((1u << FLUSH_PAGE_SHIFT) - 1);
	unsigned int page = (uintptr_t)packed >> FLUSH_PAGE_SHIFT;

	(void)vcpu;
	if (simulator.running && simulator.counted)
		machine__flush(&simulator.machine, simulator.core, kind,
			       page ? vcpu__register(page - 1) : NO_ADDRESS);
}

static size_t read_bytes(const struct qemu_plugin_insn *insn, uint8_t bytes[INSN_BYTES_MAX])
{
	size_t size = qemu_plugin_insn_size(insn);

	if (size > INSN_BYTES_MAX)
		return 0;
#if QEMU_API < 3
	memcpy(bytes, qemu_plugin_insn_data(insn), size);
#else
	qemu_plugin_insn_data(insn, bytes, size);
#endif
	return size;
}

static enum insn_kind instruction_kind(const struct qemu_plugin_insn *insn, unsigned int *marker)
{
	uint8_t bytes[INSN_BYTES_MAX] = { 0 };
	size_t size = read_bytes(insn, bytes);
	enum insn_kind kind = insn__kind(bytes, size);

	if (kind == INSN_MARKER)
		*marker = insn__marker(bytes);
	return kind;
}

static void on_marker(unsigned int vcpu, void *marker);

static void watch_marker(struct qemu_plugin_insn *insn, unsigned int marker)
{
	qemu_plugin_register_vcpu_insn_exec_cb(insn, on_marker, VCPU_CB_FLAGS, (void *)(uintptr_t)marker);
}

static void watch_flush(struct qemu_plugin_insn *insn, enum insn_kind kind)
{
	uint8_t bytes[INSN_BYTES_MAX] = { 0 };
	size_t size = read_bytes(insn, bytes);
	uintptr_t packed = kind;

	if (kind == INSN_FLUSH_PAGE && VCPU_HAS_REGISTERS)
		packed |= (uintptr_t)(insn__page_register(bytes, size) + 1) << FLUSH_PAGE_SHIFT;
	qemu_plugin_register_vcpu_insn_exec_cb(insn, on_flush, VCPU_CB_FLAGS, (void *)packed);
}

/* Look for markers in user code. */
static void find_markers(QEMU_ID_FIRST struct qemu_plugin_tb *tb QEMU_DATA_LAST)
{
	if (qemu_plugin_tb_vaddr(tb) >> 63)
		return;
	for (size_t i = 0; i < qemu_plugin_tb_n_insns(tb); i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		unsigned int marker;

		if (instruction_kind(insn, &marker) == INSN_MARKER)
			watch_marker(insn, marker);
	}
}

/* The meaning of an instruction's accesses depends on its location. */
static enum insn_kind kind_here(enum insn_kind kind, uint64_t address, const struct symbol *symbol)
{
	if (kind == INSN_REPEATED)
		return kind;
	if (address >> 63 == 0)
		return INSN_PLAIN;
	if (kind == INSN_PUSH_POP && !(symbol && symbol->flags & SYMBOL_SWITCH))
		return INSN_PLAIN;
	return kind;
}

static void instrument(QEMU_ID_FIRST struct qemu_plugin_tb *tb QEMU_DATA_LAST)
{
	uint64_t address = qemu_plugin_tb_vaddr(tb), addresses[BLOCK_INSNS_MAX];
	const struct symbol *symbol = symbols__find(&simulator.symbols, address);
	enum insn_kind kinds[BLOCK_INSNS_MAX];
	size_t count = qemu_plugin_tb_n_insns(tb);
	/* Never freed, because QEMU may execute the block until the end. */
	struct block *block = malloc(sizeof(*block));

	if (!block || count > BLOCK_INSNS_MAX) {
		if (!simulator.failed)
			fprintf(stderr, "simulator: a block of %zu instructions: %s\n", count,
				block ? "too many" : strerror(ENOMEM));
		free(block);
		simulator.failed = true;
		return;
	}
	for (size_t i = 0; i < count; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		unsigned int marker = 0;

		kinds[i] = instruction_kind(insn, &marker);
		addresses[i] = qemu_plugin_insn_vaddr(insn);
		if (kinds[i] == INSN_MARKER)
			watch_marker(insn, marker);
		if (kinds[i] >= INSN_FLUSH_PAGE)
			watch_flush(insn, kinds[i]);
		qemu_plugin_register_vcpu_mem_cb(insn, on_access, QEMU_PLUGIN_CB_NO_REGS, QEMU_PLUGIN_MEM_RW,
						 (void *)(uintptr_t)kind_here(kinds[i], address, symbol));
	}
	block__describe(block, &simulator.symbols, address, count, kinds, addresses);
	qemu_plugin_register_vcpu_tb_exec_cb(tb, on_block, VCPU_CB_FLAGS, block);
}

static void on_end(QEMU_ID_FIRST void *userdata)
{
	(void)userdata;
	if (!simulator.failed && !simulator.running)
		report__end(simulator.out, simulator.measurements);
	fclose(simulator.out);
}

static void on_reset(QEMU_ONE_ARGUMENT)
{
	qemu_plugin_register_atexit_cb(simulator.id, on_end, NULL);
	qemu_plugin_register_vcpu_tb_trans_cb(simulator.id, instrument QEMU_NO_DATA);
}

static int read_symbols(void)
{
	const char *missing;
	int err = 0;

	for (unsigned int i = 0; i < simulator.model.symbol_files && !err; i++)
		err = symbols__read(&simulator.symbols, simulator.model.symbols[i]);
	if (err) {
		report__error(simulator.out, "symbols", strerror(-err));
		return err;
	}
	err = symbols__finish(&simulator.symbols, &missing);
	if (err)
		report__error(simulator.out, missing, "missing in the symbols; use those of the guest's kernel");
	return err;
}

/*
 * Let QEMU translate all code again. This is done once and never undone: QEMU 7.2 can abort in a second
 * qemu_plugin_reset().
 */
static void warm(void)
{
	if (!simulator.instrumented) {
		if (read_symbols()) {
			simulator.failed = true;
			return;
		}
		simulator.instrumented = true;
		qemu_plugin_reset(simulator.id, on_reset QEMU_NO_DATA);
	}
	machine__begin(&simulator.machine);
	simulator.running = true;
	simulator.counted = shared__any_active(&simulator.machine.shared, simulator.model.caches.cores);
	if (simulator.machine.shared.memory)
		simulator.machine.shared.memory->running = 1;
}

/*
 * With a PMU in the guest, code stays uninstrumented, which is much faster, until a counter is on and something is
 * sent.
 */
static bool starts_measurement(uintptr_t marker)
{
	const struct shared *shared = &simulator.machine.shared;

	return marker == MARKER_SENDER && !simulator.instrumented && shared->memory &&
	       shared__any_active(shared, simulator.model.caches.cores);
}

static void stop(void)
{
	simulator.running = false;
	if (simulator.awaiting) {
		report__error(simulator.out, "the command", "sent nothing through a socket, so nothing was counted");
		simulator.failed = true;
		return;
	}
	if (report__write(simulator.out, ++simulator.measurements, &simulator.machine)) {
		fprintf(stderr, "simulator: %s: cannot write: %s\n", simulator.model.out, strerror(errno));
		simulator.failed = true;
	}
}

static void on_marker(unsigned int vcpu, void *marker)
{
	if (simulator.failed)
		return;
	/* The block's callback does not set the core before the first marker, nor between two measurements. */
	simulator.core = vcpu__now(vcpu);
	if ((uintptr_t)marker <= MARKER_RECEIVER)
		simulator.quiet = 0;
	if ((uintptr_t)marker == MARKER_WARM || starts_measurement((uintptr_t)marker))
		warm();
	if (!simulator.running)
		return;
	switch ((uintptr_t)marker) {
	case MARKER_SENDER:
		stacks__set_side(&simulator.machine.stacks, simulator.core, SIDE_SENDER);
		break;
	case MARKER_RECEIVER:
		stacks__set_side(&simulator.machine.stacks, simulator.core, SIDE_RECEIVER);
		break;
	case MARKER_COUNT:
		restart_counts();
		break;
	case MARKER_AWAIT:
		simulator.awaiting = true;
		break;
	case MARKER_STOP:
		stop();
		break;
	}
}

QEMU_EXPORT int qemu_plugin_install(qemu_plugin_id_t id, const void *info, int argc, char **argv)
{
	char error[MODEL_ERROR_BYTES];
	int err;

	(void)info;
	/* Copy the arguments, because QEMU does not document how long it keeps them. */
	for (int i = 0; i < argc; i++)
		argv[i] = strdup(argv[i]);
	if (model__parse(&simulator.model, argc, argv, error)) {
		fprintf(stderr, "simulator: %s\n", error);
		return -1;
	}
	if (simulator.model.ddio != DDIO_UNSEEN && !VCPU_HAS_REGISTERS) {
		fprintf(stderr, "simulator: ddio needs QEMU 9.0 or later, which lets plugins read registers\n");
		return -1;
	}
	simulator.id = id;
	simulator.out = fopen(simulator.model.out, "we");
	if (!simulator.out) {
		fprintf(stderr, "simulator: %s: %s\n", simulator.model.out, strerror(errno));
		return -1;
	}
	err = machine__open(&simulator.machine, &simulator.model);
	if (err) {
		fprintf(stderr, "simulator: %s: %s\n", err == -ENOMEM ? "caches" : simulator.model.shared, strerror(-err));
		return -1;
	}
	vcpu__watch(id);
	qemu_plugin_register_atexit_cb(id, on_end, NULL);
	qemu_plugin_register_vcpu_tb_trans_cb(id, find_markers QEMU_NO_DATA);
	return 0;
}
