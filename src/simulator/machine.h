/* SPDX-License-Identifier: GPL-2.0 */
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
 * The simulated machine: what is executed and accessed, in its order, goes into the stacks and through the caches.
 * Knows nothing of QEMU.
 */

/* What a translated block is. */
struct block {
	uint64_t function;
	unsigned int instructions;
	enum block_kind kind;
	bool at_start;			/* of its function */
	bool device_done;
	bool sends;
	uint64_t first_repeated;	/* the address of a repeated instruction that it begins, or ends, with; or 0 */
	uint64_t last_repeated;
};

struct machine_core {
	struct tlb tlb;
	struct pages pages;
	uint64_t repeating;		/* the instruction that the last block ended with */
	uint64_t last_line[2];		/* that was read, written */
	uint64_t last_virtual_line[2];
	uint64_t last_virtual_page, last_physical_page;
	bool user;			/* runs */
	bool interrupt_returned;	/* by the instruction that runs */
};

struct machine {
	struct hierarchy caches;
	struct stacks stacks;
	struct machine_core cores[CORES_MAX];
	struct shared shared;
	unsigned int line_shift;
	uint64_t lost_accesses;		/* nobody knew where they went */
};

/* An address that no line of memory lies behind: a device, or not known. */
#define NO_ADDRESS UINT64_MAX

/* 0, -ENOMEM, or why the shared memory cannot be opened. */
int machine__open(struct machine *machine, const struct model *model);
void machine__close(struct machine *machine);
/* Before a measurement: what the cores knew of tasks, pages and repeated instructions is outdated. The caches stay. */
void machine__begin(struct machine *machine);
/* A block as it will be executed; kinds[] are those of its instructions, addresses[] where they are. */
void block__describe(struct block *block, const struct symbols *symbols, uint64_t address, unsigned int count,
		     const enum insn_kind *kinds, const uint64_t *addresses);
void machine__execute(struct machine *machine, unsigned int core, const struct block *block);

/* An instruction drops translations: of one page, if its address is known, or as its kind says. */
void machine__flush(struct machine *machine, unsigned int core, enum insn_kind kind, uint64_t address);

/* A device has written there; with DDIO its lines are in the LLC. */
void machine__device_write(struct machine *machine, uint64_t physical, uint64_t bytes, bool ddio);

struct access {
	uint64_t address;
	uint64_t physical;		/* or NO_ADDRESS */
	unsigned int bytes;
	bool write;
	enum insn_kind kind;		/* INSN_PUSH_POP: of __switch_to_asm */
};

/* Is this another element of a line that a repeated instruction has accessed just so? Then it is counted, and done. */
bool machine__repeat(struct machine *machine, unsigned int core, const struct access *access);
void machine__access(struct machine *machine, unsigned int core, const struct access *access);

#endif
