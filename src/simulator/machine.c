// SPDX-License-Identifier: GPL-2.0-only
#include <stddef.h>

#include "machine.h"

#define KERNEL_BEGIN (1ull << 63)

int machine__open(struct machine *machine, const struct model *model)
{
	int err;

	*machine = (struct machine){ .line_shift = (unsigned int)__builtin_ctz(model->caches.line_bytes) };
	err = hierarchy__open(&machine->caches, &model->caches);
	if (!err)
		err = stacks__open(&machine->stacks, model->caches.cores);
	for (unsigned int core = 0; core < model->caches.cores && !err; core++)
		err = tlb__open(&machine->cores[core].tlb, &model->tlb);
	if (!err && model->shared)
		err = shared__open(&machine->shared, model->shared, model->bells);
	if (err)
		machine__close(machine);
	return err;
}

void machine__close(struct machine *machine)
{
	for (unsigned int core = 0; core < CORES_MAX; core++)
		tlb__close(&machine->cores[core].tlb);
	stacks__close(&machine->stacks);
	hierarchy__close(&machine->caches);
	shared__close(&machine->shared);
}

void machine__begin(struct machine *machine)
{
	stacks__forget_tasks(&machine->stacks);
	for (unsigned int core = 0; core < CORES_MAX; core++)
		machine->cores[core] = (struct machine_core){ .tlb = machine->cores[core].tlb };
}

static enum block_kind block_kind_of(const struct symbol *symbol, uint64_t address)
{
	if (address < KERNEL_BEGIN)
		return BLOCK_USER;
	if (symbol && symbol->flags & SYMBOL_INTERRUPT_STUB)
		return BLOCK_INTERRUPT_STUB;
	if (!symbol || symbol->address != address)
		return BLOCK_KERNEL;
	if (symbol->flags & SYMBOL_SYSCALL_ENTRY)
		return BLOCK_SYSCALL;
	if (symbol->flags & SYMBOL_NMI)
		return BLOCK_NMI;
	return symbol->flags & SYMBOL_INTERRUPT_ENTRY ? BLOCK_INTERRUPT : BLOCK_KERNEL;
}

void block__describe(struct block *block, const struct symbols *symbols, uint64_t address, unsigned int count,
		     const enum insn_kind *kinds, const uint64_t *addresses)
{
	const struct symbol *symbol = symbols__find(symbols, address);
	const bool user = address < KERNEL_BEGIN, at_start = symbol && symbol->address == address;
	const unsigned int flags = at_start ? symbol->flags : 0;

	/* Functions of user mode are known only when a command is measured. */
	*block = (struct block){
		.function = symbol ? symbol->address : user ? 0 : address,
		.instructions = count,
		.kind = block_kind_of(symbol, address),
		.at_start = at_start,
		.device_done = flags & SYMBOL_DEVICE_DONE,
		.sends = flags & SYMBOL_SENDS,
	};
	if (!count)
		return;
	if (kinds[0] == INSN_REPEATED)
		block->first_repeated = addresses[0];
	if (kinds[count - 1] == INSN_REPEATED)
		block->last_repeated = addresses[count - 1];
}

void machine__execute(struct machine *machine, unsigned int core, const struct block *block)
{
	struct machine_core *here = &machine->cores[core];
	unsigned int instructions = block->instructions;

	machine->stacks.cores[core].unread = !shared__is_active(&machine->shared, core);
	stacks__enter(&machine->stacks, core, block->function, block->kind, block->at_start);
	machine->stacks.nodes[machine->stacks.cores[core].node].executed += instructions;
	/* Each element of a repeated instruction is a separate block. */
	if (block->first_repeated && block->first_repeated == here->repeating)
		instructions--;
	here->repeating = block->last_repeated;
	here->interrupt_returned = false;
	here->user = block->kind == BLOCK_USER;
	stacks__counts(&machine->stacks, core)->of[COUNT_instructions] += instructions;
	shared__instructions(&machine->shared, core, instructions);
}

static void count_line(struct machine *machine, unsigned int core, uint64_t line, bool write)
{
	struct counts *counts = stacks__counts(&machine->stacks, core);
	unsigned int result = hierarchy__access(&machine->caches, core, line, write);

	if (machine->cores[core].last_line[write] != line)
		counts->of[write ? COUNT_written_lines : COUNT_read_lines]++;
	machine->cores[core].last_line[write] = line;
	if (!result)
		return;
	shared__misses(&machine->shared, core, result, write);
	/* Columns of the same level are adjacent: loads, stores. */
	counts->of[COUNT_l1d_load_misses + write]++;
	counts->of[COUNT_l2_load_misses + write] += !!(result & ACCESS_L2_MISS);
	counts->of[COUNT_llc_load_misses + write] += !!(result & ACCESS_LLC_MISS);
	counts->of[COUNT_remote_lines] += !!(result & ACCESS_REMOTE);
	counts->of[COUNT_dirty_lines] += !!(result & ACCESS_DIRTY);
}

static void count_page(struct machine *machine, unsigned int core, uint64_t address, uint64_t physical)
{
	struct machine_core *here = &machine->cores[core];
	unsigned int result;

	if (here->last_virtual_page == address >> PAGE_SHIFT && here->last_physical_page == physical >> PAGE_SHIFT)
		return;
	here->last_virtual_page = address >> PAGE_SHIFT;
	here->last_physical_page = physical >> PAGE_SHIFT;
	result = tlb__access(&here->tlb, address, physical);
	if (result) {
		struct counts *counts = stacks__counts(&machine->stacks, core);

		counts->of[COUNT_tlb_l1_misses]++;
		counts->of[COUNT_tlb_l2_misses] += !!(result & TLB_L2_MISS);
	}
}

static void count_bytes(struct machine *machine, unsigned int core, const struct access *access)
{
	stacks__counts(&machine->stacks, core)->of[access->write ? COUNT_written_bytes : COUNT_read_bytes] +=
		access->bytes;
}

static void follow(struct machine *machine, unsigned int core, const struct access *access)
{
	struct stacks *stacks = &machine->stacks;

	switch (access->kind) {
	case INSN_CALL:
		if (access->write)
			stacks__call(stacks, core, access->address);
		break;
	case INSN_RETURN:
		stacks__return(stacks, core, access->address);
		break;
	case INSN_PUSH_POP:
		if (access->write)
			stacks__leave(stacks, core, access->address);
		else
			stacks__switch(stacks, core, access->address);
		break;
	case INSN_INTERRUPT_RETURN:
		/*
		 * iret loads five words. Handle the iret at the first load, because the others could belong to an outer
		 * interrupt.
		 */
		if (!machine->cores[core].interrupt_returned)
			stacks__interrupt_return(stacks, core, access->address);
		machine->cores[core].interrupt_returned = true;
		break;
	default:
		if (access->write)
			stacks__store(stacks, core, access->address);
		break;
	}
}

bool machine__repeat(struct machine *machine, unsigned int core, const struct access *access)
{
	uint64_t line = access->address >> machine->line_shift;
	uint64_t *last = &machine->cores[core].last_virtual_line[access->write];
	bool same = access->kind == INSN_REPEATED && *last == line &&
		    (access->address + access->bytes - 1) >> machine->line_shift == line;

	*last = access->kind == INSN_REPEATED ? line : 0;
	if (same)
		count_bytes(machine, core, access);
	return same;
}

void machine__access(struct machine *machine, unsigned int core, const struct access *access)
{
	uint64_t line, last;

	/* An interrupt has started. QEMU attributes the CPU's own stores and loads to the interrupted instruction. */
	if (machine->cores[core].user && access->address >= KERNEL_BEGIN)
		return;
	if (access->physical != NO_ADDRESS) {
		line = access->physical >> machine->line_shift;
		last = (access->physical + access->bytes - 1) >> machine->line_shift;
		count_bytes(machine, core, access);
		count_page(machine, core, access->address, access->physical);
		for (; line <= last; line++)
			count_line(machine, core, line, access->write);
	}
	follow(machine, core, access);
}

void machine__flush(struct machine *machine, unsigned int core, enum insn_kind kind, uint64_t address)
{
	struct machine_core *here = &machine->cores[core];

	stacks__counts(&machine->stacks, core)->of[COUNT_tlb_flushes]++;
	pages__forget(&here->pages);
	here->last_virtual_page = NO_ADDRESS;
	if (kind != INSN_FLUSH_PAGE)
		tlb__flush(&here->tlb, kind == INSN_FLUSH_ALL);
	else if (address != NO_ADDRESS)
		tlb__flush_page(&here->tlb, address);
}

void machine__device_write(struct machine *machine, uint64_t physical, uint64_t bytes, bool ddio)
{
	uint64_t line = physical >> machine->line_shift;
	uint64_t end = (physical + bytes + (1ull << machine->line_shift) - 1) >> machine->line_shift;

	for (; line < end; line++)
		hierarchy__device_write(&machine->caches, line, ddio);
}
