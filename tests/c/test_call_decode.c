#include <stddef.h>
#include <string.h>

#include "../../src/collector/call_decode.h"
#include "check.h"

#define TEXT_BASE 0xffffffff81a00000ull
#define TEXT_BYTES 64

/* A call at this offset of the text to a function this far from its beginning, in the code of this machine. */
static void put_call(unsigned char *text, size_t offset, int64_t distance)
{
#if defined(__x86_64__)
	int32_t operand = distance - (int64_t)offset - 5;

	text[offset] = 0xe8;
	memcpy(text + offset + 1, &operand, sizeof(operand));
#elif defined(__aarch64__)
	uint32_t instruction = 0x94000000u | (((distance - (int64_t)offset) / 4) & 0x3ffffff);

	memcpy(text + offset, &instruction, sizeof(instruction));
#else
	(void)text;
	(void)offset;
	(void)distance;
#endif
}

static struct call_target one(int64_t distance)
{
	return (struct call_target){ .low = TEXT_BASE + distance, .high = TEXT_BASE + distance };
}

static void calls_are_found_in_order_and_others_are_not(void)
{
	const struct call_target targets[] = { one(0x20000), one(-0x300000) };
	unsigned char text[TEXT_BYTES] = {};

	put_call(text, 8, 0x20000);
	put_call(text, 20, 0x20040);
	put_call(text, 40, -0x300000);
	CHECK(call_length > 0);
	CHECK(call_decode__next(text, sizeof(text), TEXT_BASE, 0, targets, 2) == 8);
	CHECK(call_decode__next(text, sizeof(text), TEXT_BASE, 9, targets, 2) == 40);
	CHECK(call_decode__next(text, sizeof(text), TEXT_BASE, 41, targets, 2) < 0);
	CHECK(call_decode__next(text, sizeof(text), TEXT_BASE, 0, targets + 1, 1) == 40);
	/* The same text elsewhere calls something else. */
	CHECK(call_decode__next(text, sizeof(text), TEXT_BASE + 16, 0, targets, 2) < 0);
}

static void a_call_that_ends_the_text_has_nothing_after_it(void)
{
	const struct call_target target = one(0x1000);
	unsigned char text[TEXT_BYTES] = {};
	size_t last = TEXT_BYTES - call_length;

	put_call(text, last, 0x1000);
	CHECK(call_decode__next(text, TEXT_BYTES, TEXT_BASE, 0, &target, 1) < 0);
	CHECK(call_decode__next(text, 2, TEXT_BASE, 0, &target, 1) < 0);
	CHECK(call_decode__next(text, 0, TEXT_BASE, 0, &target, 1) < 0);
}

static void a_range_is_a_target_to_its_last_byte(void)
{
	const struct call_target range = { .low = TEXT_BASE + 0x1000, .high = TEXT_BASE + 0x1010 };
	unsigned char text[TEXT_BYTES] = {};

	put_call(text, 8, 0x1010);
	CHECK(call_decode__next(text, sizeof(text), TEXT_BASE, 0, &range, 1) == 8);
	put_call(text, 8, 0x1000);
	CHECK(call_decode__next(text, sizeof(text), TEXT_BASE, 0, &range, 1) == 8);
	put_call(text, 8, 0x1014);
	CHECK(call_decode__next(text, sizeof(text), TEXT_BASE, 0, &range, 1) < 0);
	put_call(text, 8, 0xffc);
	CHECK(call_decode__next(text, sizeof(text), TEXT_BASE, 0, &range, 1) < 0);
}

static void every_call_is_found_wherever_it_is(void)
{
	uint64_t random = 7;

	for (int i = 0; i < 10000; i++) {
		int64_t distance = (int64_t)(next_random(&random) % 0x4000000) - 0x2000000;
		size_t offset = next_random(&random) % (TEXT_BYTES - call_length);
		unsigned char text[TEXT_BYTES] = {};
		struct call_target target;

		distance &= ~3ll;
		offset &= ~3ull;
		target = one(distance);
		put_call(text, offset, distance);
		CHECK_EQUAL(call_decode__next(text, sizeof(text), TEXT_BASE, 0, &target, 1), offset);
	}
}

const struct test call_decode_tests[] = {
	{ "call_decode: calls are found in order and others are not", calls_are_found_in_order_and_others_are_not },
	{ "call_decode: a call that ends the text has nothing after it", a_call_that_ends_the_text_has_nothing_after_it },
	{ "call_decode: a range is a target to its last byte", a_range_is_a_target_to_its_last_byte },
	{ "call_decode: every call is found wherever it is", every_call_is_found_wherever_it_is },
	{ NULL, NULL },
};
