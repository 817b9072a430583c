// SPDX-License-Identifier: GPL-2.0
#include "call_decode.h"

#include <string.h>

#if defined(__x86_64__)
const size_t call_length = 5;
#define STEP 1

/* call rel32: e8, and the distance from the next instruction. */
static bool decode(const unsigned char *text, uint64_t address, uint64_t *target)
{
	int32_t distance;

	if (text[0] != 0xe8)
		return false;
	memcpy(&distance, text + 1, sizeof(distance));
	*target = address + 5 + (int64_t)distance;
	return true;
}
#elif defined(__aarch64__)
const size_t call_length = 4;
#define STEP 4

/* bl imm26: 100101, and the distance from this instruction in words. */
static bool decode(const unsigned char *text, uint64_t address, uint64_t *target)
{
	uint32_t instruction;

	memcpy(&instruction, text, sizeof(instruction));
	if (instruction >> 26 != 0x25)
		return false;
	*target = address + (int64_t)((int32_t)(instruction << 6) >> 6) * 4;
	return true;
}
#else
const size_t call_length;
#define STEP 1

static bool decode(const unsigned char *text, uint64_t address, uint64_t *target)
{
	(void)text;
	(void)address;
	(void)target;
	return false;
}
#endif

static bool is_wanted(uint64_t target, const struct call_target *targets, size_t count)
{
	for (size_t i = 0; i < count; i++)
		if (target >= targets[i].low && target <= targets[i].high)
			return true;
	return false;
}

long call_decode__next(const unsigned char *text, size_t size, uint64_t address, size_t from,
		       const struct call_target *targets, size_t count)
{
	uint64_t target;

	for (size_t offset = from; call_length && offset + call_length < size; offset += STEP)
		if (decode(text + offset, address + offset, &target) && is_wanted(target, targets, count))
			return offset;
	return -1;
}
