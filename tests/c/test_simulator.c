// SPDX-License-Identifier: GPL-2.0-only
/* Tests of the simulator: instructions, symbols, options, and the simulated machine as a whole. */
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../src/simulator/machine.h"
#include "../../src/traffic/marker.h"
#include "check.h"

TEST("simulator: what an instruction is")
{
	static const struct {
		const char *bytes;
		size_t size;
		enum insn_kind kind;
	} instructions[] = {
		{ "\xe8\x01\x02\x03\x04", 5, INSN_CALL },
		{ "\x2e\xe8\x01\x02\x03\x04", 6, INSN_CALL },
		{ "\xff\xd0", 2, INSN_CALL },				/* call *%rax */
		{ "\x41\xff\xd3", 3, INSN_CALL },			/* call *%r11 */
		{ "\xff\x15\x01\x02\x03\x04", 6, INSN_CALL },		/* call *x(%rip) */
		{ "\x3e\xff\x50\x08", 4, INSN_CALL },			/* notrack call *8(%rax) */
		{ "\xff\xe0", 2, INSN_PLAIN },				/* jmp *%rax */
		{ "\xff\x35\x01\x02\x03\x04", 6, INSN_PLAIN },		/* push x(%rip) */
		{ "\xc3", 1, INSN_RETURN },
		{ "\xf3\xc3", 2, INSN_RETURN },
		{ "\xc2\x08\x00", 3, INSN_RETURN },
		{ "\x48\xcf", 2, INSN_INTERRUPT_RETURN },
		{ "\x5b", 1, INSN_PUSH_POP },
		{ "\x55", 1, INSN_PUSH_POP },
		{ "\x41\x5f", 2, INSN_PUSH_POP },
		{ "\xf3\xa4", 2, INSN_REPEATED },			/* rep movsb */
		{ "\xf3\x48\xa5", 3, INSN_REPEATED },			/* rep movsq */
		{ "\xf3\xaa", 2, INSN_REPEATED },
		{ "\xa4", 1, INSN_PLAIN },				/* movsb, once */
		{ "\xf3\x90", 2, INSN_PLAIN },				/* pause */
		{ "\xf3\x0f\x1e\xfa", 4, INSN_PLAIN },			/* endbr64 */
		{ "\x0f\x1f\x80\x11\x00\x53\x43", 7, INSN_MARKER },
		{ "\x0f\x1f\x80\x00\x00\x00\x00", 7, INSN_PLAIN },
		{ "\x48", 1, INSN_PLAIN },
		{ "\x0f\x01\x3f", 3, INSN_FLUSH_PAGE },		/* invlpg (%rdi) */
		{ "\x41\x0f\x01\x3c\x24", 5, INSN_FLUSH_PAGE },	/* invlpg (%r12) */
		{ "\x0f\x01\xf8", 3, INSN_PLAIN },			/* swapgs */
		{ "\x0f\x01\x38", 3, INSN_FLUSH_PAGE },
		{ "\x0f\x01\x30", 3, INSN_PLAIN },			/* lmsw (%rax) */
		{ "\x0f\x22\xd8", 3, INSN_FLUSH_OWN },		/* mov %rax,%cr3 */
		{ "\x41\x0f\x22\xdc", 4, INSN_FLUSH_OWN },		/* mov %r12,%cr3 */
		{ "\x0f\x20\xd8", 3, INSN_PLAIN },			/* mov %cr3,%rax */
		{ "\x0f\x22\xe7", 3, INSN_FLUSH_ALL },			/* mov %rdi,%cr4 */
		{ "\x0f\x22\xc0", 3, INSN_PLAIN },			/* mov %rax,%cr0 */
		{ "\x66\x0f\x38\x82\x06", 5, INSN_FLUSH_ALL },	/* invpcid (%rsi),%rax */
	};
	static const struct {
		const char *bytes;
		size_t size;
		int number;
	} pages[] = {
		{ "\x0f\x01\x38", 3, 0 }, { "\x0f\x01\x3f", 3, 7 }, { "\x41\x0f\x01\x39", 4, 9 },
		{ "\x0f\x01\x3c\x24", 4, 4 }, { "\x41\x0f\x01\x3c\x24", 5, 12 },
		{ "\x0f\x01\x7d\x00", 4, 5 }, { "\x41\x0f\x01\x7d\x00", 5, 13 },
		/* 8(%rbp), 8(%rax), (%rax,%rcx), x(%rip) */
		{ "\x0f\x01\x7d\x08", 4, -1 }, { "\x0f\x01\x78\x08", 4, -1 }, { "\x0f\x01\x3c\x08", 4, -1 },
		{ "\x0f\x01\x3d\x01\x02\x03\x04", 7, -1 },
	};

	for (size_t i = 0; i < sizeof(instructions) / sizeof(*instructions); i++)
		CHECK_EQUAL(insn__kind((const uint8_t *)instructions[i].bytes, instructions[i].size),
			    instructions[i].kind);
	for (size_t i = 0; i < sizeof(pages) / sizeof(*pages); i++)
		CHECK_EQUAL(insn__page_register((const uint8_t *)pages[i].bytes, pages[i].size), pages[i].number);
	CHECK_EQUAL(insn__marker((const uint8_t *)"\x0f\x1f\x80\x11\x02\x53\x43"), 0x0211);
}

#ifdef __x86_64__
__attribute__((noinline)) static void executes_a_marker(void)
{
	marker__execute(MARKER_COUNT);
}

/* The simulator recognises the marker instructions that the traffic program executes. */
TEST("simulator: the traffic's marker is found")
{
	const uint8_t *code = (const uint8_t *)executes_a_marker;
	unsigned int at = 0;

	executes_a_marker();
	while (at < 64 && insn__kind(code + at, 7) != INSN_MARKER)
		at++;
	CHECK(at < 64);
	CHECK_EQUAL(insn__marker(code + at), MARKER_COUNT);
}
#endif

static const char kallsyms[] =
	"ffffffff81000000 T _text\n"
	"ffffffff81000400 t first\n"
	"ffffffff81e00000 T entry_SYSCALL_64\n"
	"ffffffff81001000 T __switch_to_asm\n"
	"ffffffff81000800 D data\n"
	"ffffffff81e01000 T asm_sysvec_apic_timer_interrupt\n"
	"ffffffff81e02000 T asm_call_irq_on_stack\n"
	"ffffffff81002000 T memcpy\n"
	"ffffffff81000400 T alias_of_first\n"
	"ffffffffc0000000 t veth_xmit\t[veth]\n"
	"ffffffff81e03000 T irq_entries_start\n"
	"ffffffff81003000 T tcp_sendmsg\n"
	"no symbol at all\n";

static int read_text(struct symbols *symbols, const char *text)
{
	char path[] = "/tmp/copyscope-symbols-XXXXXX";
	int fd = mkstemp(path), err;

	if (fd < 0 || write(fd, text, strlen(text)) < 0)
		return -EIO;
	err = symbols__read(symbols, path);
	close(fd);
	unlink(path);
	return err;
}

TEST("simulator: symbols")
{
	struct symbols symbols = { 0 };
	const char *missing = "";

	CHECK_EQUAL(read_text(&symbols, kallsyms), 0);
	CHECK_EQUAL(symbols__finish(&symbols, &missing), 0);
	CHECK_EQUAL(symbols.count, 10);
	CHECK(!symbols__find(&symbols, 0xffffffff80ffffff));
	CHECK_EQUAL(symbols__find(&symbols, 0xffffffff81000000)->address, 0xffffffff81000000);
	/* Data symbols are not functions. An address between two functions belongs to the one before it. */
	CHECK_EQUAL(symbols__find(&symbols, 0xffffffff81000900)->address, 0xffffffff81000400);
	CHECK_EQUAL(symbols__find(&symbols, 0xffffffffc0000123)->address, 0xffffffffc0000000);
	CHECK_EQUAL(symbols__find(&symbols, 0xffffffff81001001)->flags, SYMBOL_SWITCH);
	CHECK_EQUAL(symbols__find(&symbols, 0xffffffff81e00000)->flags, SYMBOL_SYSCALL_ENTRY);
	CHECK_EQUAL(symbols__find(&symbols, 0xffffffff81e01000)->flags, SYMBOL_INTERRUPT_ENTRY);
	CHECK_EQUAL(symbols__find(&symbols, 0xffffffff81e02000)->flags, 0);
	symbols__close(&symbols);
	CHECK_EQUAL(read_text(&symbols, "ffffffff81e00000 T entry_SYSCALL_64\n"), 0);
	CHECK_EQUAL(symbols__finish(&symbols, &missing), -ENOENT);
	CHECK(!strcmp(missing, "__switch_to_asm"));
	symbols__close(&symbols);
	CHECK_EQUAL(symbols__read(&symbols, "/nowhere/kallsyms"), -ENOENT);
	CHECK_EQUAL(symbols__finish(&symbols, &missing), -ENOENT);
}

#define NEEDED "out=o", "symbols=s"

TEST("simulator: options, and what is wrong with them")
{
	static char *all[] = { NEEDED, "symbols=t", "l1d=48K:12", "l2=2M:16", "llc=105M:15", "line=128", "vcpus=8",
			       "inclusion=victim", "prefetch=next", "tlb=96:6/32:4/2048:16", "ddio=on", "shared=m", "bells=3/4" };
	static char *const wrong[] = {
		"l1d", "l3=1M:8", "l1d=32K", "l1d=-32K:8", "llc=5000M:16", "l2=0:8", "line=8", "vcpus=9", "inclusion=half",
		"ddio=yes", "prefetch=", "tlb=64:4/32:4", "tlb=64:5/32:4/2048:16", "bells=", "bells=3/", "bells=3/0",
	};
	static char *const unsound[] = { "l1d=33000:8", "l1d=0:0", "line=96" };
	static char *without_out[] = { "symbols=s" }, *without_symbols[] = { "out=o" };
	char error[MODEL_ERROR_BYTES] = "";
	struct model model;

	CHECK_EQUAL(model__parse(&model, sizeof(all) / sizeof(*all), all, error), 0);
	CHECK_EQUAL(model.caches.llc.size_bytes, 105u << 20);
	CHECK_EQUAL(model.caches.llc.ways, 15);
	CHECK_EQUAL(model.caches.l1d.size_bytes, 48u << 10);
	CHECK_EQUAL(model.caches.cores, 8);
	CHECK(model.caches.victim && model.caches.prefetch_next);
	CHECK_EQUAL(model.tlb.small.ways, 6);
	CHECK_EQUAL(model.symbol_files, 2);
	CHECK_EQUAL(model.ddio, DDIO_ON);
	CHECK(!strcmp(model.shared, "m") && model.bells[0] == 3 && model.bells[1] == 4 && !model.bells[2]);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(*wrong); i++) {
		char *arguments[] = { NEEDED, wrong[i] };

		CHECK_EQUAL(model__parse(&model, 3, arguments, error), -EINVAL);
		CHECK(!strncmp(error, wrong[i], strlen(wrong[i])) && strstr(error, ": unknown option or invalid value"));
	}
	for (size_t i = 0; i < sizeof(unsound) / sizeof(*unsound); i++) {
		char *arguments[] = { NEEDED, unsound[i] };

		CHECK_EQUAL(model__parse(&model, 3, arguments, error), -EINVAL);
		CHECK(!strcmp(error, "caches: the size must be a multiple of ways times line size"));
	}
	CHECK_EQUAL(model__parse(&model, 1, without_out, error), -EINVAL);
	CHECK(strstr(error, "name the file to write"));
	CHECK_EQUAL(model__parse(&model, 1, without_symbols, error), -EINVAL);
}

static struct machine machine;

static int open_machine(void)
{
	char *arguments[] = { NEEDED };
	char error[MODEL_ERROR_BYTES];
	struct model model;
	int err = model__parse(&model, 2, arguments, error);

	return err ? err : machine__open(&machine, &model);
}

/*
 * Execute rep movsb of `bytes` as QEMU does: a block, a load and a store for each byte. The first block has `before` more
 * instructions.
 */
static void copy_bytes(uint64_t from, uint64_t to, unsigned int bytes, unsigned int before)
{
	const struct block first = { .kind = BLOCK_USER, .instructions = before + 1, .last_repeated = 0x1000,
				     .first_repeated = before ? 0 : 0x1000 };
	const struct block other = { .kind = BLOCK_USER, .instructions = 1, .first_repeated = 0x1000,
				     .last_repeated = 0x1000 };

	for (unsigned int i = 0; i < bytes; i++) {
		machine__execute(&machine, 0, i ? &other : &first);
		for (unsigned int write = 0; write < 2; write++) {
			uint64_t address = (write ? to : from) + i;
			struct access access = { .address = address, .physical = address, .bytes = 1, .write = write,
						 .kind = INSN_REPEATED };

			if (!machine__repeat(&machine, 0, &access))
				machine__access(&machine, 0, &access);
		}
	}
}

TEST("simulator: a repeated instruction is one")
{
	const struct block after = { .kind = BLOCK_USER, .instructions = 3 };
	const uint64_t *of;

	CHECK_EQUAL(open_machine(), 0);
	of = stacks__counts(&machine.stacks, 0)->of;
	copy_bytes(0x100000, 0x200000, 4096, 9);
	CHECK_EQUAL(of[COUNT_instructions], 10);
	CHECK_EQUAL(machine.stacks.nodes[machine.stacks.cores[0].node].executed, 9 + 4096);
	CHECK_EQUAL(of[COUNT_read_bytes], 4096);
	CHECK_EQUAL(of[COUNT_written_bytes], 4096);
	CHECK_EQUAL(of[COUNT_read_lines], 64);
	CHECK_EQUAL(of[COUNT_l1d_load_misses], 64);
	CHECK_EQUAL(of[COUNT_l1d_store_misses], 64);
	CHECK_EQUAL(of[COUNT_tlb_l1_misses], 2);
	machine__execute(&machine, 0, &after);
	/* A second execution of the same instruction, not aligned to lines, counts separately. */
	copy_bytes(0x100020, 0x200010, 128, 0);
	CHECK_EQUAL(of[COUNT_instructions], 14);
	CHECK_EQUAL(of[COUNT_read_bytes], 4096 + 128);
	CHECK_EQUAL(of[COUNT_read_lines], 64 + 3);
	CHECK_EQUAL(of[COUNT_l1d_load_misses], 64);
	machine__close(&machine);
}

/* Two rounds over 1 MiB, word by word: instructions, bytes and misses are those of the loop. */
TEST("simulator: a loop over words misses what theory says")
{
	const struct block loop = { .kind = BLOCK_USER, .instructions = 3 };
	const uint64_t *of;

	CHECK_EQUAL(open_machine(), 0);
	of = stacks__counts(&machine.stacks, 0)->of;
	for (unsigned int i = 0; i < 2u << 17; i++) {
		struct access access = { .address = (uint64_t)i % (1u << 17) * 8 + (1u << 21), .bytes = 8 };

		access.physical = access.address + 0x123000;
		machine__execute(&machine, 0, &loop);
		machine__access(&machine, 0, &access);
	}
	CHECK_EQUAL(of[COUNT_instructions], 3 * (2u << 17));
	CHECK_EQUAL(of[COUNT_read_bytes], 2u << 20);
	CHECK_EQUAL(of[COUNT_read_lines], 32768);
	CHECK_EQUAL(of[COUNT_l1d_load_misses], 32768);
	CHECK_EQUAL(of[COUNT_l2_load_misses], 16384);
	CHECK_EQUAL(of[COUNT_tlb_l1_misses], 2 * 256);
	CHECK_EQUAL(of[COUNT_tlb_l2_misses], 256);
	machine__close(&machine);
}

/* A block of three instructions reads a line of 64 bytes. */
static void read_line(unsigned int core, uint64_t line)
{
	const struct block block = { .kind = BLOCK_USER, .instructions = 3 };
	struct access access = { .address = line << 6, .physical = line << 6, .bytes = 8 };

	machine__execute(&machine, core, &block);
	machine__access(&machine, core, &access);
}

/*
 * A guest reads the counters, and gets an interrupt when one reaches its limit. While no guest reads them, nothing is added to a
 * stack.
 */
TEST("simulator: counters that the guest reads")
{
	char shared[32], error[MODEL_ERROR_BYTES];
	char *arguments[] = { NEEDED, shared };
	int memory = memfd_create("shared", 0);
	struct simpmu_cpu *cpu;
	struct model model;

	snprintf(shared, sizeof(shared), "shared=/proc/self/fd/%d", memory);
	CHECK_EQUAL(ftruncate(memory, SIMPMU_BYTES), 0);
	CHECK_EQUAL(model__parse(&model, 3, arguments, error), 0);
	CHECK_EQUAL(machine__open(&machine, &model), 0);
	CHECK_EQUAL(machine.shared.memory->magic, SIMPMU_MAGIC);
	cpu = &machine.shared.memory->cpus[0];
	CHECK(!shared__any_active(&machine.shared, 2));
	read_line(0, 1);
	CHECK_EQUAL(stacks__counts(&machine.stacks, 0)->of[COUNT_instructions], 3);
	CHECK_EQUAL(machine.stacks.nodes[machine.stacks.cores[0].node].counts.of[COUNT_instructions], 0);
	cpu->active = 1;
	cpu->limit[SIMPMU_LLC_LOAD_MISSES] = 3;
	CHECK(shared__any_active(&machine.shared, 2));
	read_line(0, 2);
	CHECK(!machine.shared.due);
	read_line(0, 3);
	CHECK(machine.shared.due && cpu->rung && !cpu->limit[SIMPMU_LLC_LOAD_MISSES]);
	/* Each core has its own counters. They stand still while the interrupt is handled. */
	read_line(1, 4);
	cpu->frozen = 1;
	read_line(0, 5);
	CHECK_EQUAL(cpu->count[SIMPMU_INSTRUCTIONS], 9);
	CHECK_EQUAL(cpu->count[SIMPMU_L1D_LOAD_MISSES], 3);
	CHECK_EQUAL(cpu->count[SIMPMU_L1D_STORE_MISSES], 0);
	CHECK_EQUAL(cpu->count[SIMPMU_CYCLES], 9 + 3 * (14 + 36 + 150));
	CHECK_EQUAL(machine.stacks.nodes[machine.stacks.cores[0].node].counts.of[COUNT_instructions], 6);
	machine__close(&machine);
	close(memory);
}

/* An access across two lines touches both. Accesses to devices do not count as memory. */
TEST("simulator: accesses across lines, and of devices")
{
	const struct block block = { .kind = BLOCK_USER, .instructions = 1 };
	struct access access = { .address = 0x10003e, .physical = 0x10003e, .bytes = 4, .write = true };
	const uint64_t *of;

	CHECK_EQUAL(open_machine(), 0);
	of = stacks__counts(&machine.stacks, 0)->of;
	machine__execute(&machine, 0, &block);
	machine__access(&machine, 0, &access);
	CHECK_EQUAL(of[COUNT_written_bytes], 4);
	CHECK_EQUAL(of[COUNT_written_lines], 2);
	CHECK_EQUAL(of[COUNT_l1d_store_misses], 2);
	/* The words that the CPU pushes when it leaves user mode do not count for the program. */
	access.address = 0xfffffe0000003ff8;
	access.physical = 0x200000;
	machine__access(&machine, 0, &access);
	CHECK_EQUAL(of[COUNT_written_bytes], 4);
	access.address = 0x10003e;
	access.physical = NO_ADDRESS;
	machine__access(&machine, 0, &access);
	CHECK_EQUAL(of[COUNT_written_bytes], 4);
	machine__close(&machine);
}

/* Each flush is counted where it is executed, and the dropped pages miss once more. */
TEST("simulator: translations that are dropped")
{
	const struct block block = { .kind = BLOCK_KERNEL, .function = 0xffffffff81000400, .instructions = 1 };
	struct access user = { .address = 0x400000, .physical = 0x1000, .bytes = 8 };
	struct access other = { .address = 0x7000, .physical = 0x2000, .bytes = 8 };
	struct access kernel = { .address = 0xffffc90000000000, .physical = 0x3000, .bytes = 8 };
	static const struct {
		enum insn_kind kind;
		uint64_t page;
		unsigned int missed;	/* misses among the three pages */
	} flushes[] = {
		{ INSN_FLUSH_PAGE, 0x400abc, 1 }, { INSN_FLUSH_PAGE, 0x500000, 0 }, { INSN_FLUSH_PAGE, NO_ADDRESS, 0 },
		{ INSN_FLUSH_OWN, NO_ADDRESS, 2 }, { INSN_FLUSH_ALL, NO_ADDRESS, 3 },
	};
	const uint64_t *of;
	uint64_t expected = 3;

	CHECK_EQUAL(open_machine(), 0);
	machine__execute(&machine, 0, &block);
	of = stacks__counts(&machine.stacks, 0)->of;
	for (size_t i = 0; i <= sizeof(flushes) / sizeof(*flushes); i++) {
		machine__access(&machine, 0, &other);
		machine__access(&machine, 0, &kernel);
		machine__access(&machine, 0, &user);
		/* A second access to the same page does not look up the first level, unless the page was dropped. */
		machine__access(&machine, 0, &user);
		CHECK_EQUAL(of[COUNT_tlb_l1_misses], expected);
		CHECK_EQUAL(of[COUNT_tlb_l2_misses], expected);
		CHECK_EQUAL(of[COUNT_tlb_flushes], i);
		if (i == sizeof(flushes) / sizeof(*flushes))
			break;
		machine__flush(&machine, 0, flushes[i].kind, flushes[i].page);
		expected += flushes[i].missed;
	}
	/* The other CPU has its own TLB. */
	machine__execute(&machine, 1, &block);
	machine__access(&machine, 1, &user);
	machine__flush(&machine, 0, INSN_FLUSH_ALL, NO_ADDRESS);
	machine__access(&machine, 1, &user);
	CHECK_EQUAL(stacks__counts(&machine.stacks, 1)->of[COUNT_tlb_l1_misses], 1 + expected);
	machine__close(&machine);
}

TEST("simulator: what a block is")
{
	static const enum insn_kind kinds[] = { INSN_REPEATED, INSN_PLAIN, INSN_REPEATED };
	static const uint64_t addresses[] = { 0xffffffff81002000, 0xffffffff81002002, 0xffffffff81002005 };
	struct symbols symbols = { 0 };
	const char *missing;
	struct block block;

	CHECK_EQUAL(read_text(&symbols, kallsyms), 0);
	CHECK_EQUAL(symbols__finish(&symbols, &missing), 0);
	block__describe(&block, &symbols, addresses[0], 3, kinds, addresses);
	CHECK(block.kind == BLOCK_KERNEL && block.at_start);
	CHECK_EQUAL(block.first_repeated, addresses[0]);
	CHECK_EQUAL(block.last_repeated, addresses[2]);
	block__describe(&block, &symbols, 0xffffffff81e00000, 2, kinds, addresses);
	CHECK_EQUAL(block.kind, BLOCK_SYSCALL);
	CHECK_EQUAL(block.last_repeated, 0);
	block__describe(&block, &symbols, 0xffffffff81e00004, 2, kinds, addresses);
	CHECK_EQUAL(block.kind, BLOCK_KERNEL);
	CHECK_EQUAL(block.function, 0xffffffff81e00000);
	block__describe(&block, &symbols, 0xffffffff81e01000, 2, kinds, addresses);
	CHECK_EQUAL(block.kind, BLOCK_INTERRUPT);
	block__describe(&block, &symbols, 0xffffffff81e03010, 2, kinds, addresses);
	CHECK_EQUAL(block.kind, BLOCK_INTERRUPT_STUB);
	block__describe(&block, &symbols, 0x401000, 2, kinds, addresses);
	CHECK_EQUAL(block.kind, BLOCK_USER);
	CHECK_EQUAL(block.function, 0);
	CHECK_EQUAL(read_text(&symbols, "0000000000400800 t memcpy\n"), 0);
	CHECK_EQUAL(symbols__finish(&symbols, &missing), 0);
	block__describe(&block, &symbols, 0x401000, 2, kinds, addresses);
	CHECK(block.kind == BLOCK_USER && block.function == 0x400800 && !block.sends);
	block__describe(&block, &symbols, 0xffffffff81003000, 2, kinds, addresses);
	CHECK(block.kind == BLOCK_KERNEL && block.sends);
	block__describe(&block, &symbols, 0xffffffff81003008, 2, kinds, addresses);
	CHECK(!block.sends);
	symbols__close(&symbols);
}
