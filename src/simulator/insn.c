// SPDX-License-Identifier: GPL-2.0-only
#include <stdbool.h>
#include <string.h>

#include "insn.h"

/* nopl 0x4353XXXX(%rax) */
static const uint8_t marker_begin[] = { 0x0f, 0x1f, 0x80 }, marker_end[] = { 0x53, 0x43 };
#define MARKER_BYTES 7

static bool is_prefix(uint8_t byte)
{
	switch (byte) {
	case 0x26: case 0x2e: case 0x36: case 0x3e: case 0x64: case 0x65: case 0x66: case 0x67:
	case 0xf0: case 0xf2: case 0xf3:
		return true;
	}
	return false;
}

/* ins, outs, movs, cmps, stos, lods, scas */
static bool is_string(uint8_t opcode)
{
	return (opcode >= 0x6c && opcode <= 0x6f) || (opcode >= 0xa4 && opcode <= 0xa7) ||
	       (opcode >= 0xaa && opcode <= 0xaf);
}

static bool is_marker(const uint8_t *bytes, size_t size)
{
	return size == MARKER_BYTES && !memcmp(bytes, marker_begin, sizeof(marker_begin)) &&
	       !memcmp(bytes + MARKER_BYTES - sizeof(marker_end), marker_end, sizeof(marker_end));
}

unsigned int insn__marker(const uint8_t *bytes)
{
	return bytes[3] | bytes[4] << 8;
}

int insn__page_register(const uint8_t *bytes, size_t size)
{
	bool rex = (bytes[0] & 0xf0) == 0x40;
	const uint8_t *modrm = bytes + rex + 2, *after = modrm + 1;
	unsigned int base = *modrm & 7, last = base == 4 ? 0x24 : 0;

	/* As base register, rsp and r12 need a SIB byte; rbp and r13 need a displacement, which must be 0. */
	if (*modrm >> 6 != (base == 5) || modrm - bytes + 1 + (base == 4 || base == 5) != (ptrdiff_t)size)
		return -1;
	if ((base == 4 || base == 5) && *after != last)
		return -1;
	return (int)(base | (rex ? (bytes[0] & 1) << 3 : 0));
}

static enum insn_kind kind_after_0f(const uint8_t *bytes, size_t size)
{
	unsigned int mod, reg;

	if (size < 2)
		return INSN_PLAIN;
	mod = bytes[1] >> 6;
	reg = bytes[1] >> 3 & 7;
	if (bytes[0] == 0x01 && reg == 7 && mod != 3)
		return INSN_FLUSH_PAGE;
	if (bytes[0] == 0x22 && reg == 3)
		return INSN_FLUSH_OWN;
	if ((bytes[0] == 0x22 && reg == 4) || (bytes[0] == 0x38 && bytes[1] == 0x82))
		return INSN_FLUSH_ALL;
	return INSN_PLAIN;
}

enum insn_kind insn__kind(const uint8_t *bytes, size_t size)
{
	bool repeated = false;
	size_t at = 0;
	uint8_t opcode;

	if (is_marker(bytes, size))
		return INSN_MARKER;
	for (; at < size && is_prefix(bytes[at]); at++)
		repeated |= bytes[at] == 0xf2 || bytes[at] == 0xf3;
	/* REX prefix */
	if (at < size && (bytes[at] & 0xf0) == 0x40)
		at++;
	if (at == size)
		return INSN_PLAIN;
	opcode = bytes[at];
	if (repeated && is_string(opcode))
		return INSN_REPEATED;
	if (opcode >= 0x50 && opcode <= 0x5f)
		return INSN_PUSH_POP;
	switch (opcode) {
	case 0x0f:
		return kind_after_0f(bytes + at + 1, size - at - 1);
	case 0xe8:
		return INSN_CALL;
	case 0xc2:
	case 0xc3:
		return INSN_RETURN;
	case 0xcf:
		return INSN_INTERRUPT_RETURN;
	case 0xff:
		/* /2: a call through a register or memory */
		return at + 1 < size && (bytes[at + 1] >> 3 & 7) == 2 ? INSN_CALL : INSN_PLAIN;
	}
	return INSN_PLAIN;
}
