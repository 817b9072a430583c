/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SIMULATOR_INSN_H
#define SIMULATOR_INSN_H

#include <stddef.h>
#include <stdint.h>

/* The kinds of x86-64 instructions that the simulator distinguishes. */
enum insn_kind {
	INSN_PLAIN,
	INSN_CALL,		/* stores its return address */
	INSN_RETURN,
	INSN_INTERRUPT_RETURN,
	INSN_PUSH_POP,		/* push or pop of a register */
	INSN_REPEATED,		/* a repeated string instruction, which QEMU executes element by element */
	INSN_MARKER,
	/*
	 * The following instructions invalidate TLB entries: Intel SDM volume 3, "Operations that Invalidate TLBs and
	 * Paging-Structure Caches" (4.10.4.1).
	 */
	INSN_FLUSH_PAGE,	/* invlpg: one page */
	INSN_FLUSH_OWN,		/* mov to cr3: all but global pages */
	INSN_FLUSH_ALL,		/* mov to cr4, with which Linux flushes global pages; invpcid */
};

enum insn_kind insn__kind(const uint8_t *bytes, size_t size);
/* Return the number in a marker (src/traffic/marker.h). */
unsigned int insn__marker(const uint8_t *bytes);
/*
 * Return the number of the register that holds the address of an invlpg, if nothing is added to the register; else -1.
 */
int insn__page_register(const uint8_t *bytes, size_t size);

#endif
