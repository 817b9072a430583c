// SPDX-License-Identifier: GPL-2.0-only
#include "call_decode.h"

#include <string.h>

/* call rel32: opcode e8, then the distance from the next instruction. */
static bool decode_x86(const unsigned char *text, uint64_t address, uint64_t *target)
{
	int32_t distance;

	if (text[0] != 0xe8)
		return false;
	memcpy(&distance, text + 1, sizeof(distance));
	*target = address + 5 + (int64_t)distance;
	return true;
}

const struct call_code call_code_x86 = { .length = 5, .step = 1, .decode = decode_x86 };

/* bl imm26: 100101, then the distance from this instruction in words. */
static bool decode_arm64(const unsigned char *text, uint64_t address, uint64_t *target)
{
	uint32_t instruction;

	memcpy(&instruction, text, sizeof(instruction));
	if (instruction >> 26 != 0x25)
		return false;
	*target = address + (int64_t)((int32_t)(instruction << 6) >> 6) * 4;
	return true;
}

const struct call_code call_code_arm64 = { .length = 4, .step = 4, .decode = decode_arm64 };

#if defined(__x86_64__)
const struct call_code *const call_code_here = &call_code_x86;
#elif defined(__aarch64__)
const struct call_code *const call_code_here = &call_code_arm64;
#else
const struct call_code *const call_code_here;
#endif

static bool is_wanted(uint64_t target, const struct call_target *targets, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (target >= targets[i].low && target <= targets[i].high)
			return true;
	return false;
}

long call_decode__next(const struct call_code *code, const unsigned char *text, size_t size, uint64_t address, size_t from,
		       const struct call_target *targets, size_t count)
{
	uint64_t target;

	for (size_t offset = (from + code->step - 1) / code->step * code->step; offset + code->length < size; offset += code->step)
		if (code->decode(text + offset, address + offset, &target) && is_wanted(target, targets, count))
			return offset;
	return -1;
}
