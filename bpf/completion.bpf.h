/* SPDX-License-Identifier: GPL-2.0 */
/* completion.bpf.h - the last notification of zero-copy sends on the error queue of a socket, read where it is. */
#ifndef COPYSCOPE_COMPLETION_BPF_H
#define COPYSCOPE_COMPLETION_BPF_H

#include "buffers.bpf.h"

/* include/uapi/linux/errqueue.h */
#define SO_EE_ORIGIN_ZEROCOPY 5
#define SO_EE_CODE_ZEROCOPY_COPIED 1

/* Read from BTF: without the tracepoint (before 5.14) the others are not seen, and one alone would say something else. */
struct trace_event_raw_inet_sk_error_report___found {
	int unused;
};

static __always_inline bool sees_completions(void)
{
	return bpf_core_type_exists(struct trace_event_raw_inet_sk_error_report___found);
}

/* It is the program's, and taking it would break the program. */
static __always_inline void see_completion(const struct sock *sk, struct zerocopy_socket *known)
{
	const struct sock_exterr_skb *serr;
	struct sk_buff *tail;
	__u32 low, high, first;

	tail = BPF_CORE_READ(sk, sk_error_queue.prev);
	/* Empty: the program was faster. The next notification tells how many were missed. */
	if (tail == (struct sk_buff *)&sk->sk_error_queue)
		return;
	serr = (const struct sock_exterr_skb *)&tail->cb;
	if (BPF_CORE_READ(serr, ee.ee_origin) != SO_EE_ORIGIN_ZEROCOPY)
		return;
	low = BPF_CORE_READ(serr, ee.ee_info);
	high = BPF_CORE_READ(serr, ee.ee_data);
	if ((__s32)(high - known->next_id) < 0)
		return;
	first = known->next_id;
	/* The kernel extends the last notification by ranges that follow it with the same code. */
	if ((__s32)(low - first) > 0)
		add_total(WATCH_UNSEEN, low - first);
	else
		low = first;
	known->next_id = high + 1;
	add_total(WATCH_NOTIFICATIONS, 1);
	add_total(WATCH_COMPLETIONS, high - low + 1);
	if (BPF_CORE_READ(serr, ee.ee_code) & SO_EE_CODE_ZEROCOPY_COPIED)
		add_total(WATCH_COPIED, high - low + 1);
	note_notice(known, first, high + 1 - first);
}

/* The program has taken a notice off: what is before the one that is now the first, or all. */
static __always_inline void see_reading(const struct sock *sk)
{
	__u64 key = (__u64)sk;
	struct zerocopy_socket *known = bpf_map_lookup_elem(&zerocopy_sockets, &key);
	const struct sock_exterr_skb *serr;
	struct sk_buff *head;
	__u32 end, low;

	if (!known)
		return;
	end = known->next_id;
	head = BPF_CORE_READ(sk, sk_error_queue.next);
	if (head != (struct sk_buff *)&sk->sk_error_queue) {
		serr = (const struct sock_exterr_skb *)&head->cb;
		low = BPF_CORE_READ(serr, ee.ee_info);
		if (BPF_CORE_READ(serr, ee.ee_origin) == SO_EE_ORIGIN_ZEROCOPY && (__s32)(low - end) < 0)
			end = low;
	}
	note_reading(known, end);
}

#endif
