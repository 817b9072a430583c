/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SIMULATOR_INSN_H
#define SIMULATOR_INSN_H

#include <stddef.h>
#include <stdint.h>

/* What matters of an x86-64 instruction here. */
enum insn_kind {
	INSN_PLAIN,
	INSN_CALL,		/* stores its return address */
	INSN_RETURN,
	INSN_INTERRUPT_RETURN,
	INSN_PUSH_POP,		/* of a register */
	INSN_REPEATED,		/* a string instruction, which QEMU executes element by element */
	INSN_MARKER,
};

enum insn_kind insn__kind(const uint8_t *bytes, size_t size);
/* The number in a marker (src/traffic/marker.h). */
unsigned int insn__marker(const uint8_t *bytes);

#endif
