// SPDX-License-Identifier: GPL-2.0-only
/*
 * functions.bpf.c - exact cost of each copy in a send or receive, measured with a call stack per task.
 *
 * Hooks at which no copy begins or ends only maintain the stack. The others read the clock and the counters: as their
 * last action where a copy begins, as their first action where a copy ends. Softirq work on top of a task is nested in
 * that task's stack, because it ends before the task continues. The time of softirqs is not part of the copies that
 * they interrupt, and copies in softirqs count in a separate context.
 */
#include "hooked.bpf.h"
#include "look_cost.bpf.h"
#include "call_stack.bpf.h"

/* How each function is hooked, set before loading. `probed` means by kprobe and kretprobe (hooked.bpf.h). */
const volatile __u8 function_arguments[ROW_CNT];
const volatile __u8 function_probed[ROW_CNT];
const volatile __u32 page_bytes = 4096;

/* Begin a bracket: a function that precedes a copy has returned. The next event is the end of that copy. */
static __always_inline int begin_bracket(__u32 category, __s64 bytes)
{
	struct call_stack *stack = begin(WITHIN_ROOT);

	if (!stack)
		return 0;
	charge(stack);
	end_bracket(stack, 1);
	/* Only a check inside a send is followed by a copy of payload. If pages are sent, nothing is copied. */
	if (bytes > 0 && innermost(stack) == CATEGORY_SEND)
		push(stack, category, bytes, ROW_BRACKET);
	resume_charging(stack);
	finish(stack);
	return 0;
}

static __always_inline int enter(__u32 row, __u32 category, __u32 kind, __u64 bytes)
{
	bool root = kind == KIND_ROOT || (kind == KIND_OWN_ROOT && watch_mode == WATCH_NOBODY);
	struct call_stack *stack;

	/* Other programs' sends are not followed. Softirqs are pushed by a hook of their own. */
	if (root && current_side() == SIDE_OTHER)
		return 0;
	stack = begin(root ? WITHIN_NOTHING : WITHIN_ROOT);
	if (!stack)
		return 0;
	if (kind == KIND_PART && innermost(stack) == CATEGORY_DEFERRED)
		goto out;
	charge(stack);
	end_bracket(stack, kind != KIND_REFERENCE);
	if (kind != KIND_MARK) {
		/* A KIND_ROOT function never calls itself: the earlier call has ended, but its exit did not fire. */
		if (root && unwind(stack, row)) {
			pop(stack);
			count_loss(LOSS_CALL_STACK_BROKEN);
		}
		push(stack, category, bytes, row);
	}
	resume_charging(stack);
out:
	finish(stack);
	return 0;
}

static __always_inline int leave(__u32 row, __u32 category, __u32 kind, __u32 bytes_kind, __s64 returned)
{
	struct call_stack *stack;
	struct call_frame *frame;
	__s64 bytes;

	stack = begin(WITHIN_ROOT);
	if (!stack)
		return 0;
	/* Inside a deferred copy the function has no frame, because it is a part of that copy. */
	if (kind == KIND_PART && innermost(stack) == CATEGORY_DEFERRED)
		goto out;
	charge(stack);
	end_bracket(stack, 1);
	frame = unwind(stack, row) ? top_frame(stack) : NULL;
	if (!frame) {
		/*
		 * The function was entered before the hooks were attached. For KIND_CALL this is normal: other code
		 * also reaches the instruction after a call.
		 */
		if (kind != KIND_CALL)
			count_loss(LOSS_CALL_STACK_BROKEN);
		goto out;
	}
	if (bytes_kind == BYTES_RETURNED)
		bytes = returned;
	else if (bytes_kind == BYTES_TAKEN)
		bytes = returned ?: (__s64)frame->bytes;
	else if (bytes_kind == BYTES_SECOND_ARGUMENT)
		bytes = (__u32)returned == (__u32)frame->bytes ? (__s64)frame->bytes : 0;
	else
		bytes = returned ? 0 : (__s64)frame->bytes;
	if (category < CATEGORY_CNT)
		count_copy(stack, frame, bytes);
	pop(stack);
	resume_charging(stack);
out:
	finish(stack);
	return 0;
}

static __always_inline __u64 pages_at(__u64 address)
{
	unsigned long pages = 0;

	bpf_probe_read_kernel(&pages, sizeof(pages), (const void *)address);
	return pages;
}

static __always_inline __u64 bytes_at_entry(void *ctx, __u32 row, __u32 bytes_kind)
{
	__u8 probed = function_probed[row];

	if (bytes_kind == BYTES_SKB_DATA_LEN)
		return BPF_CORE_READ((struct sk_buff *)ARGUMENT(ctx, probed, 0, PT_REGS_PARM1), data_len);
	if (bytes_kind == BYTES_SECOND_ARGUMENT)
		return ARGUMENT(ctx, probed, 1, PT_REGS_PARM2);
	if (bytes_kind == BYTES_INSERTED_PAGES)
		return pages_at(ARGUMENT(ctx, probed, 3, PT_REGS_PARM4)) * page_bytes;
	if (bytes_kind == BYTES_FOURTH_ARGUMENT || bytes_kind == BYTES_TAKEN)
		return (__u32)ARGUMENT(ctx, probed, 3, PT_REGS_PARM4);
	if (bytes_kind == BYTES_FIFTH_ARGUMENT)
		return (__u32)ARGUMENT(ctx, probed, 4, PT_REGS_PARM5);
	/* 5.10 writes only one byte of a bool argument; the other bytes of the slot are undefined. */
	if (bytes_kind == BYTES_CHECKED && !(__u8)ARGUMENT(ctx, probed, 2, PT_REGS_PARM3))
		return ARGUMENT(ctx, probed, 1, PT_REGS_PARM2);
	return 0;
}

/*
 * The sections say kprobe and kretprobe, but the collector attaches these programs by fentry and fexit where it can.
 */
#define FUNCTION(id, symbols, category, kind, bytes, need, moves, arguments) \
	SEC("?kprobe") \
	int enter_##id(void *ctx) \
	{ \
		__u64 at_entry = bytes_at_entry(ctx, ROW_##id, BYTES_##bytes); \
\
		if (KIND_##kind == KIND_BRACKET) \
			return begin_bracket(CATEGORY_##category, at_entry); \
		if (KIND_##kind == KIND_ROOT && \
		    !in_watched_netns((struct sock *)ARGUMENT(ctx, function_probed[ROW_##id], 0, PT_REGS_PARM1))) \
			return 0; \
		return enter(ROW_##id, CATEGORY_##category, KIND_##kind, at_entry); \
	} \
	SEC("?kretprobe") \
	int leave_##id(void *ctx) \
	{ \
		__s64 returned = BYTES_##bytes == BYTES_NONE ? 0 : \
				 (__s32)returned_value(ctx, function_probed[ROW_##id], function_arguments[ROW_##id]); \
\
		if (KIND_##kind == KIND_BRACKET) \
			return begin_bracket(CATEGORY_##category, BYTES_##bytes == BYTES_CHECKED ? \
					bytes_at_entry(ctx, ROW_##id, BYTES_##bytes) : returned); \
		return leave(ROW_##id, CATEGORY_##category, KIND_##kind, BYTES_##bytes, returned); \
	}
FUNCTIONS(FUNCTION)
#undef FUNCTION

/*
 * Return the stack of a task whose clock is followed, or NULL. This includes a task that is preempted in the middle
 * of a program, before its copy is on the stack or after it is popped: on kernels that preempt (PREEMPT_LAZY, the
 * default of 7.x), programs on functions only disable migration. Nothing is charged here, because only the task's own
 * programs do that.
 */
static __always_inline struct call_stack *followed_stack(const struct task_struct *task)
{
	struct call_stack *stack;

	if (side_of(task->tgid) == SIDE_OTHER)
		return NULL;
	stack = find_stack(task_key(task->pid));
	return stack && (stack->timed || stack->busy) ? stack : NULL;
}

SEC("?tp_btf")
int BPF_PROG(on_shadow_switch, bool preempt, struct task_struct *prev, struct task_struct *next)
{
	struct reading now = {};
	struct call_stack *stack;

	if (!functions_on)
		return 0;
	stack = followed_stack(prev);
	if (stack) {
		read_now(&now, true);
		copy_reading(&stack->off_cpu_since, &now);
	}
	stack = followed_stack(next);
	if (stack && stack->off_cpu_since.ns) {
		if (!now.ns)
			read_now(&now, true);
		add_between(&stack->off_cpu, &stack->off_cpu_since, &now);
		stack->off_cpu_since.ns = 0;
		stack->switches++;
	}
	return 0;
}

/* Softirqs of every vector count, because TCP also sends from tasklets and timers. */
SEC("?tp_btf")
int BPF_PROG(on_shadow_softirq_enter, unsigned int vec)
{
	struct call_stack *stack = begin(current_side() == SIDE_OTHER ? WITHIN_OTHER_TASK : WITHIN_NOTHING);

	if (!stack)
		return 0;
	charge(stack);
	push(stack, CATEGORY_SOFTIRQ, 0, ROW_SOFTIRQ);
	finish(stack);
	return 0;
}

SEC("?tp_btf")
int BPF_PROG(on_shadow_softirq_leave, unsigned int vec)
{
	struct call_stack *stack = begin(WITHIN_ROOT);

	if (!stack)
		return 0;
	charge(stack);
	if (stack->softirqs && unwind(stack, ROW_SOFTIRQ)) {
		pop(stack);
		if (stack->task & SOFTIRQ_STACK && !stack->depth)
			rest_below(stack);
	}
	resume_charging(stack);
	finish(stack);
	return 0;
}
