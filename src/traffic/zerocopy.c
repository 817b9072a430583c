// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "zerocopy.h"

/* Call numbers wrap at 2^32, so `a - b` is the distance from b to a. */

static struct zerocopy_call *call_of(struct zerocopy *zerocopy, uint32_t number)
{
	return &zerocopy->calls[number & (zerocopy->capacity - 1)];
}

int zerocopy__open(struct zerocopy *zerocopy, uint32_t capacity)
{
	uint32_t rounded = 16;

	while (rounded < capacity)
		rounded *= 2;
	memset(zerocopy, 0, sizeof(*zerocopy));
	zerocopy->calls = calloc(rounded, sizeof(*zerocopy->calls));
	zerocopy->capacity = rounded;
	return zerocopy->calls ? 0 : -ENOMEM;
}

void zerocopy__close(struct zerocopy *zerocopy)
{
	free(zerocopy->calls);
	zerocopy->calls = NULL;
}

static int grow(struct zerocopy *zerocopy)
{
	struct zerocopy_call *old = zerocopy->calls, *calls;
	uint32_t capacity = zerocopy->capacity;

	if (capacity > UINT32_MAX / 4)
		return -ENOMEM;
	calls = calloc(2ul * capacity, sizeof(*calls));
	if (!calls)
		return -ENOMEM;
	for (uint32_t i = 0; i < capacity; i++) {
		uint32_t number = zerocopy->oldest + i;

		calls[number & (2 * capacity - 1)] = old[number & (capacity - 1)];
	}
	free(old);
	zerocopy->calls = calls;
	zerocopy->capacity = 2 * capacity;
	return 0;
}

static void account(struct zerocopy_counts *counts, uint32_t bytes, bool copied)
{
	counts->completions++;
	if (copied) {
		counts->copied++;
		counts->bytes_copied += bytes;
	}
}

static void advance_oldest(struct zerocopy *zerocopy)
{
	while (zerocopy->oldest != zerocopy->next &&
	       call_of(zerocopy, zerocopy->oldest)->state == ZEROCOPY_FREE)
		zerocopy->oldest++;
}

int zerocopy__sent(struct zerocopy *zerocopy, uint32_t *pending, uint32_t bytes, uint64_t sent_ns)
{
	struct zerocopy_counts *counts = &zerocopy->counts;
	struct zerocopy_call *call;
	int err;

	if (zerocopy->next - zerocopy->oldest == zerocopy->capacity) {
		err = grow(zerocopy);
		if (err)
			return err;
	}
	call = call_of(zerocopy, zerocopy->next++);
	counts->sends++;
	counts->bytes_sent += bytes;
	if (call->state == ZEROCOPY_EARLY) {
		account(counts, bytes, call->early_copied);
		call->state = ZEROCOPY_FREE;
		advance_oldest(zerocopy);
		return 0;
	}
	*call = (struct zerocopy_call){
		.pending = pending, .bytes = bytes, .sent_ns = sent_ns, .state = ZEROCOPY_IN_FLIGHT,
	};
	if (pending)
		++*pending;
	if (++counts->in_flight > counts->max_in_flight)
		counts->max_in_flight = counts->in_flight;
	return 0;
}

int zerocopy__completed(struct zerocopy *zerocopy, uint32_t low, uint32_t high, bool copied,
			uint64_t now_ns, struct histogram *completion_time)
{
	uint32_t calls = high - low + 1;

	zerocopy->counts.notifications++;
	/* A valid range lies in the window of `capacity` numbers that begins with `oldest`. */
	if (low - zerocopy->oldest >= zerocopy->capacity || !calls ||
	    calls > zerocopy->capacity - (low - zerocopy->oldest))
		return -EPROTO;
	for (uint32_t number = low; calls; number++, calls--) {
		struct zerocopy_call *call = call_of(zerocopy, number);

		if (number - zerocopy->oldest >= zerocopy->next - zerocopy->oldest) {
			if (call->state == ZEROCOPY_EARLY)
				return -EPROTO;
			call->state = ZEROCOPY_EARLY;
			call->early_copied = copied;
			continue;
		}
		if (call->state != ZEROCOPY_IN_FLIGHT)
			return -EPROTO;
		call->state = ZEROCOPY_FREE;
		zerocopy->counts.in_flight--;
		account(&zerocopy->counts, call->bytes, copied);
		if (call->pending)
			--*call->pending;
		if (call->sent_ns)
			histogram__add(completion_time, now_ns - call->sent_ns);
	}
	advance_oldest(zerocopy);
	return 0;
}
