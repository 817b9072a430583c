/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * buffers.bpf.h - watched programs: life of the buffers sent with MSG_ZEROCOPY, from the return of the call to the
 * notification that the kernel no longer needs the memory, and to the reading of that notification.
 *
 * The kernel numbers these sends per socket, and a notification is a range of numbers. Send counts follow from the
 * numbers alone, and byte counts from running totals. An overwritten map entry therefore loses times but no sends.
 */
#ifndef COPYSCOPE_BUFFERS_BPF_H
#define COPYSCOPE_BUFFERS_BPF_H

#include "histogram.bpf.h"
#include "waits.bpf.h"

/*
 * Maximum number of sends timed per notification or reading. Each send costs a lookup, and thousands of small sends can
 * share a notification.
 */
#define TIMED_MOST 32

struct buffer_map {
	__uint(type, BPF_MAP_TYPE_ARRAY);
	__uint(max_entries, BUFFERS_MAX);
	__type(key, __u32);
	__type(value, struct zerocopy_buffer);
};
extern struct buffer_map zerocopy_buffers SEC(".maps");

extern __u64 zerocopy_flight[FLIGHT_SLOTS];

/*
 * Note a send without MSG_ZEROCOPY by a thread that has used the flag. The thread may have slept in this call for room
 * in the socket.
 */
static __always_inline void note_send_without_flag(__u32 protocol)
{
	struct buffer_cell *cell = waiting_used && waiting_task() ? buffer_cell_of(protocol) : NULL;

	if (cell)
		note_sent_on(cell, bpf_ktime_get_ns());
}

/*
 * Return the entry for a send. The entry may hold an earlier or later send. Sends of one socket have consecutive
 * entries.
 */
static __always_inline struct zerocopy_buffer *entry_of(const struct zerocopy_socket *zc_socket, __u32 id)
{
	__u32 index = (((__u32)(zc_socket->socket >> 6) * 0x9e3779b9u >> 17) + id) & (BUFFERS_MAX - 1);

	return bpf_map_lookup_elem(&zerocopy_buffers, &index);
}

/* Return the entry of a send, or NULL if it was overwritten. */
static __always_inline struct zerocopy_buffer *buffer_of(const struct zerocopy_socket *zc_socket, __u32 id)
{
	struct zerocopy_buffer *buffer = entry_of(zc_socket, id);

	return buffer && buffer->socket == zc_socket->socket && buffer->id == id ? buffer : NULL;
}

static __always_inline __u64 *flight_of(__u32 protocol, enum flight counter)
{
	return &zerocopy_flight[BOUNDED(protocol * FLIGHT_CNT + counter, FLIGHT_SLOTS)];
}

static __always_inline void subtract_in_flight(const struct zerocopy_socket *zc_socket, __u64 buffers, __u64 bytes)
{
	add_atomic(flight_of(zc_socket->protocol, FLIGHT_BUFFERS), -buffers);
	add_atomic(flight_of(zc_socket->protocol, FLIGHT_BYTES), -bytes);
}

static __always_inline void add_flight(__u32 protocol, enum flight now, enum flight most, __u64 part)
{
	__u64 *sum = flight_of(protocol, now), *largest = flight_of(protocol, most), current;

	add_atomic(sum, part);
	current = *(volatile __u64 *)sum;
	/* The counter may be negative: two CPUs may subtract before a third has added. */
	if ((__s64)(current - *largest) > 0)
		*largest = current;
}

static __always_inline void add_in_flight(const struct zerocopy_socket *zc_socket, __u64 buffers, __u64 bytes)
{
	add_flight(zc_socket->protocol, FLIGHT_BUFFERS, FLIGHT_MOST_BUFFERS, buffers);
	add_flight(zc_socket->protocol, FLIGHT_BYTES, FLIGHT_MOST_BYTES, bytes);
}

/*
 * Note that all sends before `end` have returned and are completed. Return the number of sends for which this is new. A
 * notification may arrive at any point of the hook of its own send; note_returned() then finds it and counts these
 * sends.
 */
static __always_inline __u32 note_given_back(struct zerocopy_socket *zc_socket, struct buffer_cell *cell, __u32 end)
{
	struct zerocopy_buffer *last = buffer_of(zc_socket, end - 1);
	__u64 until = end == zc_socket->sent_id ? zc_socket->sent_bytes : last ? last->bytes : zc_socket->back_bytes;
	__u32 buffers = end - zc_socket->back_id;

	if ((__s32)buffers <= 0)
		return 0;
	zc_socket->back_id = end;
	cell->given_back += buffers;
	subtract_in_flight(zc_socket, buffers, until - zc_socket->back_bytes);
	zc_socket->back_bytes = until;
	return buffers;
}

static __always_inline void count_ns(__u64 histogram[HIST_SLOTS], __u64 ns)
{
	histogram[CLAMPED(histogram_slot(ns), HIST_SLOTS)]++;
}

/*
 * Note that a send has returned, and that the kernel gave it the number `id`. Threads that send over one socket at the
 * same time may read the same number.
 */
static __always_inline void note_returned(struct zerocopy_socket *zc_socket, __u32 id, __u64 bytes)
{
	struct buffer_cell *cell = buffer_cell_of(zc_socket->protocol);
	struct zerocopy_buffer *buffer = entry_of(zc_socket, id);
	__u32 buffers = id + 1 - zc_socket->sent_id;
	__u64 now = bpf_ktime_get_ns();

	add_atomic(&zc_socket->sent_bytes, bytes);
	if (!cell || !buffer)
		return;
	note_sent_on(cell, now);
	if ((__s32)buffers < 0) {
		/*
		 * Another thread's later send was noted first. Its note counted this send, too, but not the bytes of
		 * this send.
		 */
		add_flight(zc_socket->protocol, FLIGHT_BYTES, FLIGHT_MOST_BYTES, bytes);
		return;
	}
	buffer->socket = zc_socket->socket;
	buffer->id = id;
	buffer->bytes = zc_socket->sent_bytes;
	buffer->noticed_ns = 0;
	buffer->returned_ns = now;
	zc_socket->sent_id = id + 1;
	cell->sends += buffers;
	/*
	 * On x86 the atomic additions are a barrier: the notification's hook sees this send, or this hook sees the
	 * notification. On arm64 both may miss it; the next notification then counts the send.
	 */
	add_in_flight(zc_socket, buffers, bytes);
	if ((__s32)(zc_socket->next_id - id) <= 0)
		return;
	buffers = note_given_back(zc_socket, cell, id + 1);
	if (!buffers)
		return;
	buffer->noticed_ns = now;
	cell->before_return += buffers;
	cell->latency[0] += buffers;
}

/*
 * Note a notification. It completes the sends from first to first + range - 1, including those whose own notification
 * was missed.
 */
static __noinline int note_completed(struct zerocopy_socket *zc_socket, __u32 first, __u32 range)
{
	struct buffer_cell *cell = zc_socket ? buffer_cell_of(zc_socket->protocol) : NULL;
	__u64 now = bpf_ktime_get_ns();
	__u32 end = first + range;

	if (!cell)
		return 0;
	if (is_awaited(zc_socket->socket))
		zc_socket->noticed_ns = now;
	/* note_returned() counts the sends that have not returned yet. */
	if ((__s32)(end - zc_socket->sent_id) > 0)
		end = zc_socket->sent_id;
	if ((__s32)(end - first) <= 0 || !note_given_back(zc_socket, cell, end))
		return 0;
	for (__u32 i = 0; i < TIMED_MOST && first + i != end; i++) {
		struct zerocopy_buffer *buffer = buffer_of(zc_socket, first + i);

		if (!buffer || buffer->noticed_ns)
			continue;
		buffer->noticed_ns = now;
		count_ns(cell->latency, now - buffer->returned_ns);
	}
	return 0;
}

/* Note that the program has read the notifications of all sends before `end`. */
static __noinline int note_notifications_read(struct zerocopy_socket *zc_socket, __u32 end)
{
	struct buffer_cell *cell = zc_socket ? buffer_cell_of(zc_socket->protocol) : NULL;
	__u64 now = bpf_ktime_get_ns();
	__u32 first;

	if (!cell || (__s32)(end - zc_socket->read_id) <= 0)
		return 0;
	first = zc_socket->read_id;
	zc_socket->read_id = end;
	cell->read += end - first;
	cell->readings++;
	note_waited(zc_socket->noticed_ns, now);
	for (__u32 i = 0; i < TIMED_MOST && first + i != end; i++) {
		struct zerocopy_buffer *buffer = buffer_of(zc_socket, first + i);

		if (buffer && buffer->noticed_ns)
			count_ns(cell->reading, now - buffer->noticed_ns);
	}
	return 0;
}

/*
 * Note that the socket is closed, or that another socket has its address: no notification will report the sends that
 * the kernel still uses.
 */
static __always_inline void note_socket_gone(const struct zerocopy_socket *zc_socket)
{
	struct buffer_cell *cell = buffer_cell_of(zc_socket->protocol);
	__u32 buffers = zc_socket->sent_id - zc_socket->next_id;

	if (!cell || (__s32)buffers <= 0)
		return;
	cell->closed += buffers;
	subtract_in_flight(zc_socket, buffers, zc_socket->sent_bytes - zc_socket->back_bytes);
}

#endif
