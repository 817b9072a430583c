#include <stddef.h>

#include "check.h"
#include "slices.h"

TEST("slices: bytes go to the slice of the moment")
{
	struct slices slices = { 0 };

	CHECK_EQUAL(slices__place(&slices, 100, 12 * SLICE_NS + 5), 0);
	CHECK_EQUAL(slices__place(&slices, 150, 12 * SLICE_NS + SLICE_NS - 1), 0);
	CHECK_EQUAL(slices__place(&slices, 170, 15 * SLICE_NS), 0);
	CHECK_EQUAL(slices.first, 12);
	CHECK_EQUAL(slices.count, 4);
	CHECK_EQUAL(slices.bytes[0], 150);
	CHECK_EQUAL(slices.bytes[1] + slices.bytes[2], 0);
	CHECK_EQUAL(slices.bytes[3], 20);
	slices__close(&slices);
}

TEST("slices: merging keeps every byte")
{
	uint64_t state = 2;

	for (int round = 0; round < 100; round++) {
		struct slices sum = { 0 };
		uint64_t total = 0, placed = 0;

		for (int thread = 0; thread < 3; thread++) {
			uint64_t own = 0, now_ns = next_random(&state) % 100 * SLICE_NS;
			struct slices slices = { 0 };

			for (int i = 0; i < 50; i++) {
				own += next_random(&state) % 1000;
				now_ns += next_random(&state) % (70 * SLICE_NS);
				CHECK_EQUAL(slices__place(&slices, own, now_ns), 0);
			}
			CHECK_EQUAL(slices__merge(&sum, &slices), 0);
			total += own;
			slices__close(&slices);
		}
		for (size_t i = 0; i < sum.count; i++)
			placed += sum.bytes[i];
		CHECK_EQUAL(placed, total);
		slices__close(&sum);
	}
}
