// SPDX-License-Identifier: GPL-2.0-only
#include <stddef.h>
#include <string.h>

#include "../../src/collector/attach/call_decode.h"
#include "check.h"

#define TEXT_BASE 0xffffffff81a00000ull
#define TEXT_BYTES 64

static const struct call_code *const codes[] = { &call_code_x86, &call_code_arm64 };
/* Define a test that runs for each architecture, whatever machine it runs on. */
#define OF_EACH(check, sentence) \
	static void check(const struct call_code *code); \
	TEST(sentence) \
	{ \
		for (int i = 0; i < 2; i++) \
			check(codes[i]); \
	} \
	static void check(const struct call_code *code)

/* Write a call at `offset` of the text to a function at `distance` from the start of the text. */
static void put_call(const struct call_code *code, unsigned char *text, size_t offset, int64_t distance)
{
	int32_t operand = distance - (int64_t)offset - 5;
	uint32_t instruction = 0x94000000u | (((distance - (int64_t)offset) / 4) & 0x3ffffff);

	if (code == &call_code_arm64) {
		memcpy(text + offset, &instruction, sizeof(instruction));
	} else {
		text[offset] = 0xe8;
		memcpy(text + offset + 1, &operand, sizeof(operand));
	}
}

static struct call_target one(int64_t distance)
{
	return (struct call_target){ .low = TEXT_BASE + distance, .high = TEXT_BASE + distance };
}

OF_EACH(calls_are_found_in_order_and_others_are_not, "call_decode: calls are found in order and others are not")
{
	const struct call_target targets[] = { one(0x20000), one(-0x300000) };
	unsigned char text[TEXT_BYTES] = {};

	put_call(code, text, 8, 0x20000);
	put_call(code, text, 20, 0x20040);
	put_call(code, text, 40, -0x300000);
	CHECK(code->length > 0);
	CHECK(call_decode__next(code, text, sizeof(text), TEXT_BASE, 0, targets, 2) == 8);
	CHECK(call_decode__next(code, text, sizeof(text), TEXT_BASE, 9, targets, 2) == 40);
	CHECK(call_decode__next(code, text, sizeof(text), TEXT_BASE, 41, targets, 2) < 0);
	CHECK(call_decode__next(code, text, sizeof(text), TEXT_BASE, 0, targets + 1, 1) == 40);
	/* At another address the same text calls other functions. */
	CHECK(call_decode__next(code, text, sizeof(text), TEXT_BASE + 16, 0, targets, 2) < 0);
}

OF_EACH(a_call_that_ends_the_text_has_nothing_after_it, "call_decode: a call that ends the text has nothing after it")
{
	const struct call_target target = one(0x1000);
	unsigned char text[TEXT_BYTES] = {};
	size_t last = TEXT_BYTES - code->length;

	put_call(code, text, last, 0x1000);
	CHECK(call_decode__next(code, text, TEXT_BYTES, TEXT_BASE, 0, &target, 1) < 0);
	CHECK(call_decode__next(code, text, 2, TEXT_BASE, 0, &target, 1) < 0);
	CHECK(call_decode__next(code, text, 0, TEXT_BASE, 0, &target, 1) < 0);
}

OF_EACH(a_range_is_a_target_to_its_last_byte, "call_decode: a range is a target to its last byte")
{
	const struct call_target range = { .low = TEXT_BASE + 0x1000, .high = TEXT_BASE + 0x1010 };
	unsigned char text[TEXT_BYTES] = {};

	put_call(code, text, 8, 0x1010);
	CHECK(call_decode__next(code, text, sizeof(text), TEXT_BASE, 0, &range, 1) == 8);
	put_call(code, text, 8, 0x1000);
	CHECK(call_decode__next(code, text, sizeof(text), TEXT_BASE, 0, &range, 1) == 8);
	put_call(code, text, 8, 0x1014);
	CHECK(call_decode__next(code, text, sizeof(text), TEXT_BASE, 0, &range, 1) < 0);
	put_call(code, text, 8, 0xffc);
	CHECK(call_decode__next(code, text, sizeof(text), TEXT_BASE, 0, &range, 1) < 0);
}

OF_EACH(every_call_is_found_wherever_it_is, "call_decode: every call is found wherever it is")
{
	uint64_t random = 7;

	for (int i = 0; i < 10000; i++) {
		int64_t distance = (int64_t)(next_random(&random) % 0x4000000) - 0x2000000;
		size_t offset = next_random(&random) % (TEXT_BYTES - code->length);
		unsigned char text[TEXT_BYTES] = {};
		struct call_target target;

		distance &= ~3ll;
		offset &= ~3ull;
		target = one(distance);
		put_call(code, text, offset, distance);
		CHECK_EQUAL(call_decode__next(code, text, sizeof(text), TEXT_BASE, 0, &target, 1), offset);
	}
}
