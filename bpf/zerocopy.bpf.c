// SPDX-License-Identifier: GPL-2.0-only
/*
 * zerocopy.bpf.c - life of a zero-copy send: whose memory a deferred copy copied, and when the notification arrived.
 *
 * Each send with MSG_ZEROCOPY has a ubuf_info, to which all its packets and their clones point. The sending task
 * enters it into a map. The owner of a packet's memory is then known in whichever task the packet is handled. This
 * does not need the layout of ubuf_info, and it works on lo and from 6.17 on, where packets no longer refer to their
 * socket there.
 */
#include "context.bpf.h"
#include "histogram.bpf.h"
#include "hooked.bpf.h"
#include "hooks.h"
#include "map.bpf.h"
#include "target.bpf.h"

MAP(HASH, zerocopy_uses, __u64, struct zerocopy_use, ZEROCOPY_USES_MAX);
MAP(HASH, zerocopy_sends, __u32, struct zerocopy_send, TASKS_MAX);
MAP(PERCPU_ARRAY, owner_cells, __u32, struct owner_cell, OWNER_CELLS);
MAP(PERCPU_ARRAY, completion_cells, __u32, struct completion_cell, SIDE_OTHER + 1);

/* Arguments that the exit of a function needs and a kretprobe does not see. Keyed by task, context and function. */
MAP(HASH, kept_arguments, __u64, __u64, TASKS_MAX);

/* How each function is hooked, set before loading (hooked.bpf.h). */
const volatile __u8 life_arguments[LIFE_CNT];
const volatile __u8 life_probed[LIFE_CNT];

/* Part of ubuf_info that kernels without struct ubuf_info_msgzc (6.1) have. */
struct ubuf_info___whole {
	refcount_t refcnt;
	__u16 len;
	__u16 zerocopy : 1;
} __attribute__((preserve_access_index));

static __always_inline int references_of(__u64 ubuf)
{
	if (bpf_core_type_exists(struct ubuf_info_msgzc))
		return BPF_CORE_READ((struct ubuf_info_msgzc *)ubuf, ubuf.refcnt.refs.counter);
	return BPF_CORE_READ((struct ubuf_info___whole *)ubuf, refcnt.refs.counter);
}

static __always_inline __u32 sends_of(__u64 ubuf)
{
	if (bpf_core_type_exists(struct ubuf_info_msgzc))
		return BPF_CORE_READ((struct ubuf_info_msgzc *)ubuf, len);
	return BPF_CORE_READ((struct ubuf_info___whole *)ubuf, len);
}

/* Return true while no packet of this ubuf_info has been copied. */
static __always_inline bool is_zerocopy(__u64 ubuf)
{
	if (bpf_core_type_exists(struct ubuf_info_msgzc))
		return BPF_CORE_READ_BITFIELD_PROBED((struct ubuf_info_msgzc *)ubuf, zerocopy);
	return BPF_CORE_READ_BITFIELD_PROBED((struct ubuf_info___whole *)ubuf, zerocopy);
}

/*
 * Key of another saved fact: the socket of msg_zerocopy_realloc() is not in a watched network namespace. This fact has
 * its own key because the verifier allows no arithmetic on the pointers that fentry passes.
 */
#define SAVED_UNWATCHED_NETNS LIFE_CNT

static __always_inline __u64 saved_argument_key(__u32 life)
{
	return (__u64)task_key(bpf_get_current_pid_tgid()) << 32 | current_context() << 16 | life;
}

static __always_inline void save_argument(__u32 life, __u64 argument)
{
	__u64 key = saved_argument_key(life);

	if (bpf_map_update_elem(&kept_arguments, &key, &argument, BPF_ANY))
		count_loss(LOSS_ZEROCOPY_MAP_FULL);
}

/* Return the saved argument and remove it. Return false if the entry was not seen. */
static __always_inline bool take_saved_argument(__u32 life, __u64 *argument)
{
	__u64 key = saved_argument_key(life);
	__u64 *saved = bpf_map_lookup_elem(&kept_arguments, &key);

	if (!saved)
		return false;
	*argument = *saved;
	bpf_map_delete_elem(&kept_arguments, &key);
	return true;
}

/*
 * The sections say kprobe and kretprobe, but the collector attaches these programs by fentry and fexit where it can.
 *
 * msg_zerocopy_realloc(sk, size, uarg) returns a new ubuf_info, or the given one, which then also covers this send.
 */
SEC("?kprobe")
int enter_zerocopy_use(void *ctx)
{
	if (!life_probed[LIFE_zerocopy_use])
		return 0;
	save_argument(LIFE_zerocopy_use, PT_REGS_PARM3((struct pt_regs *)ctx));
	if (!in_watched_netns((struct sock *)PT_REGS_PARM1((struct pt_regs *)ctx)))
		save_argument(SAVED_UNWATCHED_NETNS, 0);
	return 0;
}

/* Return the given ubuf_info, and whether its socket is watched. Return false if that is unknown. */
static __always_inline bool arguments_of_use(void *ctx, __u64 *given, bool *watched)
{
	__u64 unused;

	if (!life_probed[LIFE_zerocopy_use]) {
		*given = CTX_SLOT(ctx, 2);
		*watched = in_watched_netns((struct sock *)CTX_SLOT(ctx, 0));
		return true;
	}
	*watched = !take_saved_argument(SAVED_UNWATCHED_NETNS, &unused);
	return take_saved_argument(LIFE_zerocopy_use, given);
}

SEC("?kretprobe")
int leave_zerocopy_use(void *ctx)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct zerocopy_use fresh = {}, *use;
	struct zerocopy_send send = {};
	__u64 given = 0;
	bool watched = false;

	if (!functions_on)
		return 0;
	send.ubuf = returned_value(ctx, life_probed[LIFE_zerocopy_use], life_arguments[LIFE_zerocopy_use]);
	if (!arguments_of_use(ctx, &given, &watched) || !send.ubuf)
		return 0;
	send.is_new = send.ubuf != given;
	use = bpf_map_lookup_elem(&zerocopy_uses, &send.ubuf);
	if (use && !send.is_new) {
		use->returned_ns = 0;
	} else {
		fresh.side = watched ? current_side() : SIDE_OTHER;
		if (bpf_map_update_elem(&zerocopy_uses, &send.ubuf, &fresh, BPF_ANY)) {
			count_loss(LOSS_ZEROCOPY_MAP_FULL);
			return 0;
		}
	}
	if (bpf_map_update_elem(&zerocopy_sends, &tid, &send, BPF_ANY))
		count_loss(LOSS_ZEROCOPY_MAP_FULL);
	return 0;
}

/* tcp_sendmsg() has returned: the clock of the completion latency starts. */
SEC("?kretprobe")
int leave_zerocopy_return(void *ctx)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct zerocopy_send *send = bpf_map_lookup_elem(&zerocopy_sends, &tid);
	struct zerocopy_use *use;
	__u32 is_new;
	__s32 returned;
	__u64 ubuf;

	if (!send)
		return 0;
	returned = returned_value(ctx, life_probed[LIFE_zerocopy_return], life_arguments[LIFE_zerocopy_return]);
	ubuf = send->ubuf;
	is_new = send->is_new;
	bpf_map_delete_elem(&zerocopy_sends, &tid);
	/* A send that took nothing releases its ubuf_info without a notification. */
	if (is_new && returned <= 0) {
		bpf_map_delete_elem(&zerocopy_uses, &ubuf);
		return 0;
	}
	/* The notification may already have arrived. */
	use = bpf_map_lookup_elem(&zerocopy_uses, &ubuf);
	if (use)
		use->returned_ns = bpf_ktime_get_ns();
	return 0;
}

/* skb_copy_ubufs(skb) */
SEC("?kprobe")
int enter_zerocopy_copy(void *ctx)
{
	struct skb_shared_info *shared;
	struct zerocopy_use *use;
	struct owner_cell *cell;
	struct sk_buff *skb;
	__u32 owner, index;
	__u64 ubuf;

	if (!functions_on)
		return 0;
	skb = (struct sk_buff *)ARGUMENT(ctx, life_probed[LIFE_zerocopy_copy], 0, PT_REGS_PARM1);
	/* As skb_end_pointer(): `end` is an offset on every 64-bit architecture. */
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

/* The last reference is gone: count the sends of this ubuf_info. */
static __always_inline void notify(__u64 ubuf, const struct zerocopy_use *use)
{
	__u64 now = bpf_ktime_get_ns();
	struct zerocopy_use last = *use;
	struct completion_cell *cell;

	/* Another CPU that dropped a reference at the same time may have counted them first. */
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
	count_in(cell->histogram, last.returned_ns ? now - last.returned_ns : 0);
}

/* msg_zerocopy_complete(skb, ubuf, success) drops one reference. success is false if the packet was copied. */
SEC("?kprobe")
int enter_zerocopy_drop(void *ctx)
{
	__u64 ubuf = ARGUMENT(ctx, life_probed[LIFE_zerocopy_drop], 1, PT_REGS_PARM2);
	__u8 success = ARGUMENT(ctx, life_probed[LIFE_zerocopy_drop], 2, PT_REGS_PARM3);
	struct zerocopy_use *use = bpf_map_lookup_elem(&zerocopy_uses, &ubuf);

	if (!use)
		return 0;
	use->sends = sends_of(ubuf);
	if (!success || !is_zerocopy(ubuf))
		use->copied = 1;
	if (references_of(ubuf) == 1)
		notify(ubuf, use);
	else if (life_probed[LIFE_zerocopy_dropped])
		save_argument(LIFE_zerocopy_dropped, ubuf);
	return 0;
}

SEC("?kretprobe")
int leave_zerocopy_dropped(void *ctx)
{
	struct zerocopy_use *use;
	__u64 ubuf = 0;

	if (!life_probed[LIFE_zerocopy_dropped])
		ubuf = CTX_SLOT(ctx, 1);
	else if (!take_saved_argument(LIFE_zerocopy_dropped, &ubuf))
		return 0;
	use = bpf_map_lookup_elem(&zerocopy_uses, &ubuf);
	/*
	 * The ubuf_info is either queued as a notification, in which case its memory begins with zeroes, or freed
	 * with its contents unchanged.
	 */
	if (use && !references_of(ubuf))
		notify(ubuf, use);
	return 0;
}

/* sock_zerocopy_callback(ubuf, success): the last reference is gone. success is false if any packet was copied. */
SEC("?kprobe")
int enter_zerocopy_last(void *ctx)
{
	__u64 ubuf = ARGUMENT(ctx, life_probed[LIFE_zerocopy_last], 0, PT_REGS_PARM1);
	__u8 success = ARGUMENT(ctx, life_probed[LIFE_zerocopy_last], 1, PT_REGS_PARM2);
	struct zerocopy_use *use = bpf_map_lookup_elem(&zerocopy_uses, &ubuf);

	if (!use)
		return 0;
	use->sends = sends_of(ubuf);
	use->copied = !success;
	notify(ubuf, use);
	return 0;
}
