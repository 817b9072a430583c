// SPDX-License-Identifier: GPL-2.0
/*
 * functions.bpf.c - which function the CPU time of a send or receive goes to, exactly: a shadow stack per task.
 *
 * Each entry and exit of a hooked function charges the time since the last event to the function that was innermost.
 * So self times add up to the time between entry and exit of the root, less the time off the CPU. Softirq work that runs
 * on top of a task is nested in it: it ends before the task goes on, and it is a context of its own in the cells.
 */
#include "shadow.bpf.h"

#include "hooks.h"

#define VEC_NET_TX 2
#define VEC_NET_RX 3

static __always_inline int enter(__u32 category, __u32 kind, __u64 bytes)
{
	struct shadow *shadow;
	struct reading now = {};

	if (kind == KIND_BRACKET)
		return 0;
	/* Another's send is none of our business; a softirq root is pushed by its own hook. */
	if (kind == KIND_ROOT && current_side() == SIDE_OTHER)
		return 0;
	shadow = begin(kind == KIND_ROOT);
	if (!shadow)
		return 0;
	read_if_timed(shadow, &now);
	end_bracket(shadow, &now, kind != KIND_REFERENCE);
	if (kind != KIND_MARK) {
		charge(shadow, &now);
		push(shadow, category, bytes, 0, &now);
	}
	finish(shadow);
	return 0;
}

static __always_inline int leave(__u32 category, __u32 kind, __u32 bytes_kind, __s64 returned)
{
	struct shadow *shadow;
	struct shadow_frame *frame;
	__s64 bytes;
	struct reading now = {};

	if (kind == KIND_MARK)
		return 0;
	shadow = begin(0);
	if (!shadow)
		return 0;
	read_if_timed(shadow, &now);
	end_bracket(shadow, &now, 1);
	charge(shadow, &now);
	if (kind == KIND_BRACKET) {
		if (returned > 0)
			push(shadow, category, returned, 1, &now);
		goto out;
	}
	frame = top_frame(shadow);
	if (!frame || frame->category != category) {
		/* It was entered before we were attached. */
		count_loss(LOSS_SHADOW_BROKEN);
		goto out;
	}
	bytes = bytes_kind == BYTES_RETURNED ? returned : (__s64)frame->bytes;
	count_call(shadow, category, bytes);
	pop(shadow, &now);
out:
	finish(shadow);
	return 0;
}

static __always_inline __u64 bytes_at_entry(void *ctx, __u32 bytes_kind)
{
	__u64 skb = 0;

	if (bytes_kind != BYTES_SKB_DATA_LEN || bpf_get_func_arg(ctx, 0, &skb))
		return 0;
	return BPF_CORE_READ((struct sk_buff *)skb, data_len);
}

static __always_inline __s64 returned_value(void *ctx)
{
	__u64 value = 0;

	/* The upper half of an int is not defined. */
	return bpf_get_func_ret(ctx, &value) ? 0 : (__s32)value;
}

#define FUNCTION(id, symbols, category, kind, bytes) \
	SEC("?fentry") \
	int enter_##id(void *ctx) \
	{ \
		return enter(CATEGORY_##category, KIND_##kind, bytes_at_entry(ctx, BYTES_##bytes)); \
	} \
	SEC("?fexit") \
	int leave_##id(void *ctx) \
	{ \
		return leave(CATEGORY_##category, KIND_##kind, BYTES_##bytes, \
			     BYTES_##bytes == BYTES_RETURNED ? returned_value(ctx) : 0); \
	}
FUNCTIONS(FUNCTION)
#undef FUNCTION

static __always_inline struct shadow *shadow_of(__u32 tid)
{
	__u32 key = shadow_key(tid);
	struct shadow *shadow = bpf_map_lookup_elem(&shadows, &key);

	return shadow && shadow->depth ? shadow : NULL;
}

SEC("?tp_btf/sched_switch")
int BPF_PROG(on_shadow_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct reading now = {};
	struct shadow *shadow;

	if (side_of(prev->tgid) != SIDE_OTHER) {
		shadow = shadow_of(prev->pid);
		if (shadow && shadow->timed) {
			read_now(&now);
			if (!shadow->busy) {
				charge(shadow, &now);
				shadow->since.ns = 0;
			}
			copy_reading(&shadow->off_cpu_since, &now);
		}
	}
	if (side_of(next->tgid) != SIDE_OTHER) {
		shadow = shadow_of(next->pid);
		if (shadow && shadow->timed && shadow->off_cpu_since.ns) {
			if (!now.ns)
				read_now(&now);
			add_between(&shadow->off_cpu, &shadow->off_cpu_since, &now);
			shadow->off_cpu_since.ns = 0;
			if (!shadow->busy)
				copy_reading(&shadow->since, &now);
		}
	}
	return 0;
}

SEC("?tp_btf/softirq_entry")
int BPF_PROG(on_shadow_softirq_enter, unsigned int vec)
{
	struct shadow *shadow;
	struct reading now = {};

	if (vec != VEC_NET_TX && vec != VEC_NET_RX)
		return 0;
	shadow = begin(1);
	if (!shadow)
		return 0;
	read_if_timed(shadow, &now);
	charge(shadow, &now);
	push(shadow, CATEGORY_SOFTIRQ, 0, 0, &now);
	shadow->softirqs++;
	finish(shadow);
	return 0;
}

SEC("?tp_btf/softirq_exit")
int BPF_PROG(on_shadow_softirq_leave, unsigned int vec)
{
	struct shadow *shadow;
	struct reading now = {};

	if (vec != VEC_NET_TX && vec != VEC_NET_RX)
		return 0;
	shadow = begin(0);
	if (!shadow)
		return 0;
	if (shadow->softirqs && innermost(shadow) == CATEGORY_SOFTIRQ) {
		read_if_timed(shadow, &now);
		charge(shadow, &now);
		count_call(shadow, CATEGORY_SOFTIRQ, 0);
		shadow->softirqs--;
		pop(shadow, &now);
	}
	finish(shadow);
	return 0;
}
