// SPDX-License-Identifier: GPL-2.0
/*
 * zerocopy.bpf.c - the life of a zero-copy send: whose memory a deferred copy copied, and when the notification came.
 *
 * A send with MSG_ZEROCOPY has a ubuf_info, and every packet of it points there, down to the last clone. It is entered
 * here by the task that sends, so the owner of a packet's memory is known wherever the packet is met, on whatever task:
 * no layout of ubuf_info is needed for it, and packets of lo and of 6.17 and newer no longer name their socket there.
 */
#include "context.bpf.h"
#include "histogram.bpf.h"
#include "target.bpf.h"

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, ZEROCOPY_USES_MAX);
	__type(key, __u64);
	__type(value, struct zerocopy_use);
} zerocopy_uses SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_HASH);
	__uint(max_entries, TASKS_MAX);
	__type(key, __u32);
	__type(value, struct zerocopy_send);
} zerocopy_sends SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, OWNER_CELLS);
	__type(key, __u32);
	__type(value, struct owner_cell);
} owner_cells SEC(".maps");

struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, SIDE_OTHER + 1);
	__type(key, __u32);
	__type(value, struct completion_cell);
} completion_cells SEC(".maps");

/* msg_zerocopy_realloc(sk, size, uarg): a new ubuf_info, or the one given, which then stands for this send, too. */
SEC("?fexit")
int on_zerocopy_use(void *ctx)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct zerocopy_use fresh = {}, *use;
	struct zerocopy_send send = {};
	__u64 sk = 0, given = 0;

	if (!functions_on)
		return 0;
	if (bpf_get_func_arg(ctx, 0, &sk) || bpf_get_func_ret(ctx, &send.ubuf) || !send.ubuf || bpf_get_func_arg(ctx, 2, &given))
		return 0;
	send.is_new = send.ubuf != given;
	use = bpf_map_lookup_elem(&zerocopy_uses, &send.ubuf);
	if (use && !send.is_new) {
		use->returned_ns = 0;
	} else {
		fresh.side = in_watched_netns((struct sock *)sk) ? current_side() : SIDE_OTHER;
		if (bpf_map_update_elem(&zerocopy_uses, &send.ubuf, &fresh, BPF_ANY)) {
			count_loss(LOSS_ZEROCOPY_MAP_FULL);
			return 0;
		}
	}
	if (bpf_map_update_elem(&zerocopy_sends, &tid, &send, BPF_ANY))
		count_loss(LOSS_ZEROCOPY_MAP_FULL);
	return 0;
}

/* tcp_sendmsg(): the clock of the completion latency starts. */
SEC("?fexit")
int on_zerocopy_return(void *ctx)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct zerocopy_send *send = bpf_map_lookup_elem(&zerocopy_sends, &tid);
	struct zerocopy_use *use;
	__u64 ubuf, returned = 0;
	__u32 is_new;

	if (!send || bpf_get_func_ret(ctx, &returned))
		return 0;
	ubuf = send->ubuf;
	is_new = send->is_new;
	bpf_map_delete_elem(&zerocopy_sends, &tid);
	/* A send that took nothing gives its ubuf_info back without a notification. */
	if (is_new && (__s32)returned <= 0) {
		bpf_map_delete_elem(&zerocopy_uses, &ubuf);
		return 0;
	}
	/* It may have been notified of already. */
	use = bpf_map_lookup_elem(&zerocopy_uses, &ubuf);
	if (use)
		use->returned_ns = bpf_ktime_get_ns();
	return 0;
}

/* skb_copy_ubufs(skb) */
SEC("?fentry")
int on_zerocopy_copy(void *ctx)
{
	struct skb_shared_info *shared;
	struct zerocopy_use *use;
	struct owner_cell *cell;
	struct sk_buff *skb;
	__u64 argument = 0, ubuf;
	__u32 owner, index;

	if (!functions_on || bpf_get_func_arg(ctx, 0, &argument))
		return 0;
	skb = (struct sk_buff *)argument;
	/* skb_end_pointer(): end is an offset on every 64-bit architecture. */
	shared = (struct skb_shared_info *)(BPF_CORE_READ(skb, head) + BPF_CORE_READ(skb, end));
	ubuf = (__u64)BPF_CORE_READ(shared, destructor_arg);
	use = bpf_map_lookup_elem(&zerocopy_uses, &ubuf);
	owner = use ? use->side : OWNER_UNKNOWN;
	index = (owner * (SIDE_OTHER + 1) + current_side()) * OWNER_CONTEXTS + current_context();
	cell = bpf_map_lookup_elem(&owner_cells, &index);
	if (!cell)
		return 0;
	cell->calls++;
	cell->bytes += BPF_CORE_READ(skb, data_len);
	return 0;
}

/* The last reference is gone. */
static __always_inline void notify(__u64 ubuf, const struct zerocopy_use *use)
{
	__u64 now = bpf_ktime_get_ns();
	struct zerocopy_use last = *use;
	struct completion_cell *cell;
	__u32 slot;

	/* Another CPU that dropped a reference at the same time may have been first. */
	if (bpf_map_delete_elem(&zerocopy_uses, &ubuf) || !last.sends)
		return;
	cell = bpf_map_lookup_elem(&completion_cells, &last.side);
	if (!cell)
		return;
	cell->notifications++;
	if (last.copied)
		cell->copied += last.sends;
	else
		cell->zerocopied += last.sends;
	if (!last.returned_ns)
		cell->before_return++;
	slot = histogram_slot(last.returned_ns ? now - last.returned_ns : 0);
	if (slot < HIST_SLOTS)
		cell->histogram[slot]++;
}

/* msg_zerocopy_complete(skb, ubuf, success): one reference less; success is false for a copy. */
SEC("?fentry")
int on_zerocopy_drop(void *ctx)
{
	__u64 ubuf = 0, success = 0;
	struct ubuf_info_msgzc *info;
	struct zerocopy_use *use;

	if (bpf_get_func_arg(ctx, 1, &ubuf) || bpf_get_func_arg(ctx, 2, &success))
		return 0;
	use = bpf_map_lookup_elem(&zerocopy_uses, &ubuf);
	if (!use)
		return 0;
	info = (struct ubuf_info_msgzc *)ubuf;
	use->sends = BPF_CORE_READ(info, len);
	if (!(__u8)success || !BPF_CORE_READ_BITFIELD_PROBED(info, zerocopy))
		use->copied = 1;
	if (BPF_CORE_READ(info, ubuf.refcnt.refs.counter) == 1)
		notify(ubuf, use);
	return 0;
}

SEC("?fexit")
int on_zerocopy_dropped(void *ctx)
{
	struct ubuf_info_msgzc *info;
	struct zerocopy_use *use;
	__u64 ubuf = 0;

	if (bpf_get_func_arg(ctx, 1, &ubuf))
		return 0;
	use = bpf_map_lookup_elem(&zerocopy_uses, &ubuf);
	info = (struct ubuf_info_msgzc *)ubuf;
	/* Queued as a notification, its memory begins with zeroes; freed, with what it was. */
	if (use && !BPF_CORE_READ(info, ubuf.refcnt.refs.counter))
		notify(ubuf, use);
	return 0;
}
