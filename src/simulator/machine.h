/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SIMULATOR_MACHINE_H
#define SIMULATOR_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include "insn.h"
#include "model.h"
#include "pages.h"
#include "shared.h"
#include "stacks.h"
#include "symbols.h"

/*
 * The simulated machine. It passes executed blocks and memory accesses, in order, to the call stacks and the caches.
 * It does not depend on QEMU.
 */

/* Properties of a translated block. */
struct block {
	uint64_t function;
	unsigned int instructions;
	enum block_kind kind;
	bool at_start;			/* the block starts at the first instruction of its function */
	bool device_done;
	bool sends;
	/* address of an instruction with a REP prefix at the start (first) or end (last) of the block; 0: none */
	uint64_t first_repeated;
	uint64_t last_repeated;
};

struct machine_core {
	struct tlb tlb;
	struct pages pages;
	uint64_t repeating;		/* the repeated instruction at the end of the previous block */
	uint64_t last_line[2];		/* last line read, written */
	uint64_t last_virtual_line[2];
	uint64_t last_virtual_page, last_physical_page;
	bool user;			/* the core runs user code */
	bool interrupt_returned;	/* the current instruction was an iret and has been handled */
};

struct machine {
	struct hierarchy caches;
	struct stacks stacks;
	struct machine_core cores[CORES_MAX];
	struct shared shared;
	unsigned int line_shift;
	uint64_t lost_accesses;		/* accesses whose physical address QEMU did not know */
};

/* A physical address without a line of memory behind it: a device, or unknown. */
#define NO_ADDRESS UINT64_MAX

/* Create the state of the machine. Return 0, -ENOMEM, or the error from opening the shared memory. */
int machine__open(struct machine *machine, const struct model *model);
void machine__close(struct machine *machine);
/*
 * Start a measurement. Discard the cores' knowledge of tasks, pages and repeated instructions, which is outdated.
 * The caches keep their contents.
 */
void machine__begin(struct machine *machine);
/* Describe a block before it is executed. kinds[], addresses[]: kind and address of each instruction. */
void block__describe(struct block *block, const struct symbols *symbols, uint64_t address, unsigned int count,
		     const enum insn_kind *kinds, const uint64_t *addresses);
void machine__execute(struct machine *machine, unsigned int core, const struct block *block);

/*
 * Handle an instruction that invalidates translations: drop the translation of one page if its address is known,
 * otherwise all translations that an instruction of this kind invalidates.
 */
void machine__flush(struct machine *machine, unsigned int core, enum insn_kind kind, uint64_t address);

/* Handle a device's write to memory. With DDIO the written lines are now in the LLC. */
void machine__device_write(struct machine *machine, uint64_t physical, uint64_t bytes, bool ddio);

struct access {
	uint64_t address;
	uint64_t physical;		/* physical address, or NO_ADDRESS */
	unsigned int bytes;
	bool write;
	enum insn_kind kind;		/* INSN_PUSH_POP is used only in __switch_to_asm */
};

/*
 * Return true, and count the bytes, if a repeated instruction accesses another element of the same line in the same
 * way. Such an access is then complete.
 */
bool machine__repeat(struct machine *machine, unsigned int core, const struct access *access);
void machine__access(struct machine *machine, unsigned int core, const struct access *access);

#endif
