// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stddef.h>

#include "check.h"
#include "zerocopy.h"

static struct histogram times;

static int complete(struct zerocopy *zerocopy, uint32_t low, uint32_t high, bool copied)
{
	return zerocopy__completed(zerocopy, low, high, copied, 100, &times);
}

/* Return an account whose next call has the number `first`. */
static void open_at(struct zerocopy *zerocopy, uint32_t first)
{
	zerocopy__open(zerocopy, 16);
	zerocopy->next = first;
	zerocopy->oldest = first;
}

TEST("zerocopy: one range completes many calls")
{
	uint32_t pending[3] = { 0 };
	struct zerocopy zerocopy;

	open_at(&zerocopy, 0);
	for (int i = 0; i < 12; i++)
		zerocopy__sent(&zerocopy, &pending[i % 3], 1000 + i, 0);
	CHECK_EQUAL(pending[0], 4);
	CHECK_EQUAL(complete(&zerocopy, 0, 7, true), 0);
	CHECK_EQUAL(zerocopy.counts.completions, 8);
	CHECK_EQUAL(zerocopy.counts.copied, 8);
	CHECK_EQUAL(zerocopy.counts.bytes_copied, 8 * 1000 + 28);
	CHECK_EQUAL(zerocopy.counts.in_flight, 4);
	CHECK_EQUAL(zerocopy.counts.max_in_flight, 12);
	CHECK_EQUAL(zerocopy.counts.notifications, 1);
	CHECK_EQUAL(complete(&zerocopy, 8, 11, false), 0);
	CHECK_EQUAL(zerocopy.counts.copied, 8);
	CHECK_EQUAL(pending[0] + pending[1] + pending[2], 0);
	zerocopy__close(&zerocopy);
}

TEST("zerocopy: numbers wrap")
{
	struct zerocopy zerocopy;
	uint32_t pending = 0;

	open_at(&zerocopy, UINT32_MAX - 3);
	for (int i = 0; i < 10; i++)
		zerocopy__sent(&zerocopy, &pending, 1, 0);
	CHECK_EQUAL(zerocopy.next, 6);
	CHECK_EQUAL(complete(&zerocopy, UINT32_MAX - 1, 2, false), 0);
	CHECK_EQUAL(pending, 5);
	CHECK_EQUAL(zerocopy.oldest, UINT32_MAX - 3);
	CHECK_EQUAL(complete(&zerocopy, UINT32_MAX - 3, UINT32_MAX - 2, false), 0);
	CHECK_EQUAL(zerocopy.oldest, 3);
	CHECK_EQUAL(complete(&zerocopy, 3, 5, false), 0);
	CHECK_EQUAL(pending, 0);
	CHECK_EQUAL(zerocopy.counts.in_flight, 0);
	zerocopy__close(&zerocopy);
}

TEST("zerocopy: order does not matter")
{
	uint32_t pending[4] = { 0 };
	struct zerocopy zerocopy;

	open_at(&zerocopy, 40);
	for (int i = 0; i < 4; i++)
		zerocopy__sent(&zerocopy, &pending[i], 1, 0);
	CHECK_EQUAL(complete(&zerocopy, 43, 43, false), 0);
	CHECK_EQUAL(complete(&zerocopy, 41, 41, false), 0);
	CHECK_EQUAL(pending[0] && !pending[1] && pending[2] && !pending[3], true);
	CHECK_EQUAL(zerocopy.oldest, 40);
	CHECK_EQUAL(complete(&zerocopy, 40, 40, false), 0);
	CHECK_EQUAL(zerocopy.oldest, 42);
	zerocopy__close(&zerocopy);
}

TEST("zerocopy: what cannot be is refused")
{
	struct zerocopy zerocopy;
	uint32_t pending = 0;

	open_at(&zerocopy, 0);
	for (int i = 0; i < 4; i++)
		zerocopy__sent(&zerocopy, &pending, 1, 0);
	CHECK_EQUAL(complete(&zerocopy, 1, 1, false), 0);
	/* A call completes twice: while older calls are in flight, and after all older calls have completed. */
	CHECK_EQUAL(complete(&zerocopy, 1, 1, false), (uint64_t)-EPROTO);
	CHECK_EQUAL(complete(&zerocopy, 0, 0, false), 0);
	CHECK_EQUAL(complete(&zerocopy, 0, 0, false), (uint64_t)-EPROTO);
	/* Invalid ranges: a number far beyond the last call, and an end before the start. */
	CHECK_EQUAL(complete(&zerocopy, 1000, 1000, false), (uint64_t)-EPROTO);
	CHECK_EQUAL(complete(&zerocopy, 3, 2, false), (uint64_t)-EPROTO);
	CHECK_EQUAL(pending, 2);
	zerocopy__close(&zerocopy);
}

TEST("zerocopy: early completions are kept")
{
	struct zerocopy zerocopy;
	uint32_t pending = 0;

	open_at(&zerocopy, UINT32_MAX);
	CHECK_EQUAL(complete(&zerocopy, UINT32_MAX, 0, true), 0);
	CHECK_EQUAL(zerocopy.counts.completions, 0);
	CHECK_EQUAL(complete(&zerocopy, 0, 0, true), (uint64_t)-EPROTO);
	zerocopy__sent(&zerocopy, &pending, 10, 0);
	zerocopy__sent(&zerocopy, &pending, 20, 0);
	zerocopy__sent(&zerocopy, &pending, 30, 0);
	CHECK_EQUAL(pending, 1);
	CHECK_EQUAL(zerocopy.counts.completions, 2);
	CHECK_EQUAL(zerocopy.counts.bytes_copied, 30);
	CHECK_EQUAL(zerocopy.counts.in_flight, 1);
	CHECK_EQUAL(zerocopy.oldest, 1);
	zerocopy__close(&zerocopy);
}

TEST("zerocopy: timed calls are timed")
{
	struct histogram completion_time = { 0 };
	struct zerocopy zerocopy;

	open_at(&zerocopy, 0);
	zerocopy__sent(&zerocopy, NULL, 1, 0);
	zerocopy__sent(&zerocopy, NULL, 1, 40);
	CHECK_EQUAL(zerocopy__completed(&zerocopy, 0, 1, false, 100, &completion_time), 0);
	CHECK_EQUAL(completion_time.count, 1);
	CHECK_EQUAL(completion_time.max, 60);
	zerocopy__close(&zerocopy);
}

#define MODEL_CALLS 4096

/* Compare random sends and random completed ranges with a simple list of the calls in flight, across the wrap of the numbers. */
TEST("zerocopy: any schedule balances")
{
	static uint32_t pending[MODEL_CALLS];
	static bool done[MODEL_CALLS];

	for (uint64_t seed = 1; seed <= 60; seed++) {
		const uint32_t first = UINT32_MAX - MODEL_CALLS / 2;
		uint32_t sent = 0, completed = 0;
		struct zerocopy zerocopy;
		uint64_t state = seed;

		for (int i = 0; i < MODEL_CALLS; i++)
			pending[i] = done[i] = 0;
		open_at(&zerocopy, first);
		while (completed < MODEL_CALLS) {
			uint32_t from, to;

			if (sent < MODEL_CALLS && next_random(&state) % 3) {
				CHECK_EQUAL(zerocopy__sent(&zerocopy, &pending[sent], sent + 1, 0), 0);
				sent++;
				continue;
			}
			from = sent ? next_random(&state) % sent : 0;
			while (from < sent && done[from])
				from++;
			if (from == sent)
				for (from = 0; from < sent && done[from]; from++)
					;
			if (from >= sent)
				continue;
			for (to = from; to + 1 < sent && !done[to + 1] && next_random(&state) % 8; to++)
				;
			CHECK_EQUAL(complete(&zerocopy, first + from, first + to, true), 0);
			for (uint32_t i = from; i <= to; i++) {
				CHECK_EQUAL(pending[i], 0);
				done[i] = true;
			}
			completed += to - from + 1;
			CHECK_EQUAL(zerocopy.counts.in_flight, sent - completed);
		}
		CHECK_EQUAL(zerocopy.counts.completions, MODEL_CALLS);
		CHECK_EQUAL(zerocopy.counts.bytes_copied, zerocopy.counts.bytes_sent);
		CHECK_EQUAL(zerocopy.oldest, zerocopy.next);
		zerocopy__close(&zerocopy);
	}
}
