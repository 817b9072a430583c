/* SPDX-License-Identifier: GPL-2.0-only */
/* completion.bpf.h - reads the last zero-copy notification on the error queue of a socket in place. */
#ifndef COPYSCOPE_COMPLETION_BPF_H
#define COPYSCOPE_COMPLETION_BPF_H

#include "buffers.bpf.h"

/* include/uapi/linux/errqueue.h */
#define SO_EE_ORIGIN_ZEROCOPY 5
#define SO_EE_CODE_ZEROCOPY_COPIED 1

/*
 * True if BTF has the tracepoint. Without it (before 5.14) only the first completion of a socket could be read, which
 * would misrepresent other completions.
 */
struct trace_event_raw_inet_sk_error_report___found {
	int unused;
};

static __always_inline bool sees_completions(void)
{
	return bpf_core_type_exists(struct trace_event_raw_inet_sk_error_report___found);
}

/* Read the last notification without dequeuing it: it belongs to the program, which would break without it. */
static __always_inline void read_completion(const struct sock *sk, struct zerocopy_socket *zc_socket)
{
	const struct sock_exterr_skb *serr;
	struct sk_buff *tail;
	__u32 low, high, first;

	tail = BPF_CORE_READ(sk, sk_error_queue.prev);
	/* The queue is empty: the program was faster. The next notification shows how many were missed. */
	if (tail == (struct sk_buff *)&sk->sk_error_queue)
		return;
	serr = (const struct sock_exterr_skb *)&tail->cb;
	if (BPF_CORE_READ(serr, ee.ee_origin) != SO_EE_ORIGIN_ZEROCOPY)
		return;
	low = BPF_CORE_READ(serr, ee.ee_info);
	high = BPF_CORE_READ(serr, ee.ee_data);
	if ((__s32)(high - zc_socket->next_id) < 0)
		return;
	first = zc_socket->next_id;
	/* The kernel extends the last notification by adjacent ranges with the same code. */
	if ((__s32)(low - first) > 0)
		add_total(WATCH_UNSEEN, low - first);
	else
		low = first;
	zc_socket->next_id = high + 1;
	add_total(WATCH_NOTIFICATIONS, 1);
	add_total(WATCH_COMPLETIONS, high - low + 1);
	if (BPF_CORE_READ(serr, ee.ee_code) & SO_EE_CODE_ZEROCOPY_COPIED)
		add_total(WATCH_COPIED, high - low + 1);
	note_completed(zc_socket, first, high + 1 - first);
}

/*
 * Note that the program has read notifications: all before the notification that is now first in the queue, or all if
 * the queue is empty.
 */
static __always_inline void note_error_queue_read(const struct sock *sk)
{
	__u64 key = (__u64)sk;
	struct zerocopy_socket *zc_socket = bpf_map_lookup_elem(&zerocopy_sockets, &key);
	const struct sock_exterr_skb *serr;
	struct sk_buff *head;
	__u32 end, low;

	if (!zc_socket)
		return;
	end = zc_socket->next_id;
	head = BPF_CORE_READ(sk, sk_error_queue.next);
	if (head != (struct sk_buff *)&sk->sk_error_queue) {
		serr = (const struct sock_exterr_skb *)&head->cb;
		low = BPF_CORE_READ(serr, ee.ee_info);
		if (BPF_CORE_READ(serr, ee.ee_origin) == SO_EE_ORIGIN_ZEROCOPY && (__s32)(low - end) < 0)
			end = low;
	}
	note_notifications_read(zc_socket, end);
}

#endif
