/* SPDX-License-Identifier: GPL-2.0 */
/*
 * buffers.bpf.h - a program that we did not write: the life of what it sends with MSG_ZEROCOPY, from the return of the call to the
 * kernel's notice that it needs the memory no more, and to the reading of that notice.
 *
 * The kernel numbers these sends of a socket, and a notice is a range of numbers. How many there are is known by numbers alone, and
 * their bytes by sums at numbers: what was overwritten in the map costs times and no counts.
 */
#ifndef COPYSCOPE_BUFFERS_BPF_H
#define COPYSCOPE_BUFFERS_BPF_H

#include "histogram.bpf.h"
#include "waits.bpf.h"

/* Of one notice, or one reading, so many are timed: each costs a lookup, and small sends share a notice by thousands. */
#define TIMED_MOST 32

struct buffer_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BUFFERS_MAX);
	__type(key, __u32);
	__type(value, struct zerocopy_buffer);
};
extern struct buffer_map zerocopy_buffers SEC(".maps");

extern __u64 zerocopy_flight[FLIGHT_SLOTS];

/* A send without the flag, by a thread that has sent with it: in this call it may have slept for room. */
static __always_inline void note_sent_plainly(__u32 protocol)
{
	struct buffer_cell *cell = waiting_used && waiting_task() ? buffer_cell_of(protocol) : NULL;

	if (cell)
		note_sent_on(cell, bpf_ktime_get_ns());
}

/* Its place; another's, later or earlier, may be there. Sends of one socket follow each other. */
static __always_inline struct zerocopy_buffer *place_of(const struct zerocopy_socket *known, __u32 id)
{
	__u32 index = (((__u32)(known->socket >> 6) * 0x9e3779b9u >> 17) + id) & (BUFFERS_MAX - 1);

	return bpf_map_lookup_elem(&zerocopy_buffers, &index);
}

/* NULL: it was overwritten. */
static __always_inline struct zerocopy_buffer *buffer_of(const struct zerocopy_socket *known, __u32 id)
{
	struct zerocopy_buffer *buffer = place_of(known, id);

	return buffer && buffer->socket == known->socket && buffer->id == id ? buffer : NULL;
}

static __always_inline __u64 *flight_of(__u32 protocol, enum flight what)
{
	return &zerocopy_flight[BOUNDED(protocol * FLIGHT_CNT + what, FLIGHT_SLOTS)];
}

static __always_inline void take_back(const struct zerocopy_socket *known, __u64 buffers, __u64 bytes)
{
	add_atomic(flight_of(known->protocol, FLIGHT_BUFFERS), -buffers);
	add_atomic(flight_of(known->protocol, FLIGHT_BYTES), -bytes);
}

static __always_inline void add_flight(__u32 protocol, enum flight now, enum flight most, __u64 part)
{
	__u64 *sum = flight_of(protocol, now), *largest = flight_of(protocol, most), there;

	add_atomic(sum, part);
	there = *(volatile __u64 *)sum;
	/* Two CPUs may take back before a third has handed out. */
	if ((__s64)(there - *largest) > 0)
		*largest = there;
}

static __always_inline void hand_out(const struct zerocopy_socket *known, __u64 buffers, __u64 bytes)
{
	add_flight(known->protocol, FLIGHT_BUFFERS, FLIGHT_MOST_BUFFERS, buffers);
	add_flight(known->protocol, FLIGHT_BYTES, FLIGHT_MOST_BYTES, bytes);
}

/*
 * Up to this number all have returned and been given back: how many just now. A notice may come between any two lines of the send
 * that it is for, which finds them counted then.
 */
static __always_inline __u32 note_given_back(struct zerocopy_socket *known, struct buffer_cell *cell, __u32 end)
{
	struct zerocopy_buffer *last = buffer_of(known, end - 1);
	__u64 until = end == known->sent_id ? known->sent_bytes : last ? last->bytes : known->back_bytes;
	__u32 buffers = end - known->back_id;

	if ((__s32)buffers <= 0)
		return 0;
	known->back_id = end;
	cell->given_back += buffers;
	take_back(known, buffers, until - known->back_bytes);
	known->back_bytes = until;
	return buffers;
}

static __always_inline void count_ns(__u64 histogram[HIST_SLOTS], __u64 ns)
{
	histogram[CLAMPED(histogram_slot(ns), HIST_SLOTS)]++;
}

/* A send has returned, and the kernel gave it this number. Threads that send at once over one socket may read the same. */
static __always_inline void note_returned(struct zerocopy_socket *known, __u32 id, __u64 bytes)
{
	struct buffer_cell *cell = buffer_cell_of(known->protocol);
	struct zerocopy_buffer *buffer = place_of(known, id);
	__u32 buffers = id + 1 - known->sent_id;
	__u64 now = bpf_ktime_get_ns();

	add_atomic(&known->sent_bytes, bytes);
	if (!cell || !buffer)
		return;
	note_sent_on(cell, now);
	if ((__s32)buffers < 0) {
		/* The later send of another thread was noted first, and this one with it, but for its bytes. */
		add_flight(known->protocol, FLIGHT_BYTES, FLIGHT_MOST_BYTES, bytes);
		return;
	}
	buffer->socket = known->socket;
	buffer->id = id;
	buffer->bytes = known->sent_bytes;
	buffer->noticed_ns = 0;
	buffer->returned_ns = now;
	known->sent_id = id + 1;
	cell->sends += buffers;
	/* Its additions are a barrier: the notice sees this send, or this send that there was one. */
	hand_out(known, buffers, bytes);
	if ((__s32)(known->next_id - id) <= 0)
		return;
	buffers = note_given_back(known, cell, id + 1);
	if (!buffers)
		return;
	buffer->noticed_ns = now;
	cell->before_return += buffers;
	cell->latency[0] += buffers;
}

/* A notice of low to high; those from first on, that are less, were not seen. */
static __noinline int note_notice(struct zerocopy_socket *known, __u32 first, __u32 range)
{
	struct buffer_cell *cell = known ? buffer_cell_of(known->protocol) : NULL;
	__u64 now = bpf_ktime_get_ns();
	__u32 end = first + range;

	if (!cell)
		return 0;
	if (is_awaited(known->socket))
		known->noticed_ns = now;
	/* What has not returned counts when it does. */
	if ((__s32)(end - known->sent_id) > 0)
		end = known->sent_id;
	if ((__s32)(end - first) <= 0 || !note_given_back(known, cell, end))
		return 0;
	for (__u32 i = 0; i < TIMED_MOST && first + i != end; i++) {
		struct zerocopy_buffer *buffer = buffer_of(known, first + i);

		if (!buffer || buffer->noticed_ns)
			continue;
		buffer->noticed_ns = now;
		count_ns(cell->latency, now - buffer->returned_ns);
	}
	return 0;
}

/* The program has read notices up to this number. */
static __noinline int note_reading(struct zerocopy_socket *known, __u32 end)
{
	struct buffer_cell *cell = known ? buffer_cell_of(known->protocol) : NULL;
	__u64 now = bpf_ktime_get_ns();
	__u32 first;

	if (!cell || (__s32)(end - known->read_id) <= 0)
		return 0;
	first = known->read_id;
	known->read_id = end;
	cell->read += end - first;
	cell->readings++;
	note_waited(known->noticed_ns, now);
	for (__u32 i = 0; i < TIMED_MOST && first + i != end; i++) {
		struct zerocopy_buffer *buffer = buffer_of(known, first + i);

		if (buffer && buffer->noticed_ns)
			count_ns(cell->reading, now - buffer->noticed_ns);
	}
	return 0;
}

/* Its socket is closed, or its place is another's: nobody will tell of what is with the kernel yet. */
static __always_inline void note_gone(const struct zerocopy_socket *known)
{
	struct buffer_cell *cell = buffer_cell_of(known->protocol);
	__u32 buffers = known->sent_id - known->next_id;

	if (!cell || (__s32)buffers <= 0)
		return;
	cell->closed += buffers;
	take_back(known, buffers, known->sent_bytes - known->back_bytes);
}

#endif
