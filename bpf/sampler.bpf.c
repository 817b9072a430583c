// SPDX-License-Identifier: GPL-2.0-only
/*
 * sampler.bpf.c - samples kernel stacks, which show where CPU time and cache misses go, and counts them in a map.
 *
 * These programs are a separate object (collector.mk) without CO-RE relocations, so that it loads on kernels without
 * BTF, where no other object does. One event per CPU interrupts the running task. Tasks that are not targets are
 * sampled, too, because ksoftirqd and interrupts of an idle CPU do protocol work for sender and receiver. Their stacks
 * outside of softirqs are not stored, because user space does not need them.
 */
/* The context of a program is stable ABI and needs no relocations. */
#define BPF_NO_PRESERVE_ACCESS_INDEX
#include "target.bpf.h"

#include "map.bpf.h"
#include "stack_hash.h"

MAP(HASH, stacks, __u64, struct stack_cell, STACKS_MAX);

/* Number of samples so far. At 0 the collector need not read the map. */
__u64 samples_taken;

/* Addresses of functions, set by the collector from the symbol table. 0 functions: every stack is stored. */
__u64 softirq_begin[SOFTIRQ_FUNCTIONS_MAX];
__u64 softirq_end[SOFTIRQ_FUNCTIONS_MAX];
__u32 softirq_function_count;

/* While the collector tests whether events interrupt, the programs count only interrupts. */
__u32 trying;
__u64 interrupts[SAMPLE_CNT];

/* A stack_cell does not fit on the BPF stack (512 bytes). */
MAP(PERCPU_ARRAY, scratch, __u32, struct stack_cell, SAMPLE_CNT);

/*
 * Maximum age of the last packet of a watched program, in ticks. After that, the CPU may have worked for any other
 * program that uses the device. Our own traffic has its devices for itself: its last poll counts until another device
 * is polled. From the stack, user space knows whether a packet is being handled or was handled before (samples.py).
 */
#define OWNED_TICKS 1

struct handled_map handled_packets SEC(".maps");

static __always_inline __u32 owner_now(void)
{
	struct handled_packet *handled;
	__u32 zero = 0;

	handled = bpf_map_lookup_elem(&handled_packets, &zero);
	if (!handled || (watch_mode != WATCH_NOBODY && bpf_jiffies64() - handled->jiffies > OWNED_TICKS))
		return OWNER_NOT_KNOWN;
	return handled->owner;
}

/* Global, so that the verifier checks it once instead of for each frame. */
__noinline int is_softirq_function(__u64 address)
{
	for (__u32 i = 0; i < SOFTIRQ_FUNCTIONS_MAX && i < softirq_function_count; i++)
		if (address >= softirq_begin[i] && address < softirq_end[i])
			return 1;
	return 0;
}

static __always_inline bool is_in_softirq(const struct stack_cell *cell)
{
	for (__u32 i = 0; i < STACK_DEPTH && i < cell->depth; i++)
		if (is_softirq_function(cell->frames[i]))
			return true;
	return !softirq_function_count;
}

/*
 * Return the pid of a watched program that was interrupted in user mode. User space decides whether its code copies
 * (user_code.py), but reads no code if all programs are watched.
 */
static __always_inline __u32 user_pid(const struct stack_cell *cell, __u32 event)
{
	if (watch_mode == WATCH_NOBODY || watch_mode == WATCH_ALL || cell->depth || cell->side == SIDE_OTHER)
		return 0;
	if (event != SAMPLE_CPU_CLOCK && event != SAMPLE_CYCLES && event != SAMPLE_REF_CYCLES)
		return 0;
	return bpf_get_current_pid_tgid() >> 32;
}

static __always_inline void name_thread(struct stack_cell *cell)
{
	cell->thread[0] = 0;
	cell->thread[1] = 0;
	cell->cgroup_id = 0;
	if (watch_mode == WATCH_NOBODY || cell->side == SIDE_OTHER)
		return;
	if (watch_mode != WATCH_ALL) {
		bpf_get_current_comm(cell->thread, sizeof(cell->thread));
		return;
	}
	read_program_name((char *)cell->thread);
	cell->cgroup_id = bpf_get_current_cgroup_id();
}

/*
 * Return the word that is the return address if the running function calls no other and has pushed nothing, as
 * memcpy() of all C libraries does. User space checks that (user_code.py). On arm64 it is in the link register.
 */
static __always_inline __u64 return_address(const struct bpf_perf_event_data *ctx)
{
	__u64 address = 0;

#if defined(__TARGET_ARCH_arm64)
	address = PT_REGS_RET(&ctx->regs);
#else
	bpf_probe_read_user(&address, sizeof(address), (const void *)PT_REGS_SP(&ctx->regs));
#endif
	return address;
}

/* Maximum stack size of a function that copies, or of its caller. */
#define FRAME_BYTES_MAX (1 << 16)

/*
 * Return the return address of a function that has a frame, next to which the frame pointer points. In code without
 * frame pointers this register holds anything, and whatever it points at would make each sample a distinct kind.
 */
static __always_inline __u64 framed_return_address(const struct bpf_perf_event_data *ctx)
{
	__u64 frame = PT_REGS_FP(&ctx->regs), address = 0;

	if (frame - PT_REGS_SP(&ctx->regs) < FRAME_BYTES_MAX)
		bpf_probe_read_user(&address, sizeof(address), (const void *)(frame + sizeof(address)));
	return address;
}

static __always_inline int sample(struct bpf_perf_event_data *ctx, __u32 event)
{
	struct stack_cell *cell, *counted;
	__u64 period = ctx->sample_period, units = period / WEIGHT_UNIT(event);
	__u64 hash;
	__u32 tgid;
	long bytes;

	if (trying) {
		add_atomic(&interrupts[event], 1);
		return 0;
	}
	cell = bpf_map_lookup_elem(&scratch, &event);
	if (!cell)
		return 0;

	/* In user mode there is no kernel stack: bpf_get_stack() returns -EFAULT, and the depth is 0. */
	bytes = bpf_get_stack(ctx, cell->frames, sizeof(cell->frames), 0);
	if (bytes < 0 && bytes != -14 /* EFAULT */) {
		count_loss(LOSS_STACK_UNREADABLE);
		return 0;
	}
	cell->depth = bytes < 0 ? 0 : bytes / sizeof(__u64);
	/* Without last_side: processes that exit change the map in the other object only. */
	tgid = bpf_get_current_pid_tgid() >> 32;
	cell->side = side_of(tgid);
	if (cell->side == SIDE_OTHER)
		cell->side = side_by_task(tgid);
	cell->owner = OWNER_NOT_KNOWN;
	if (is_in_softirq(cell))
		cell->owner = owner_now();
	else if (cell->side == SIDE_OTHER)
		return 0;
	add_atomic(&samples_taken, 1);
	cell->event = event;
	cell->user_pid = user_pid(cell, event);
	if (cell->user_pid) {
		cell->frames[0] = PT_REGS_IP(&ctx->regs);
		cell->frames[1] = return_address(ctx);
		cell->frames[2] = framed_return_address(ctx);
	}
	name_thread(cell);
	cell->samples = 1;
	cell->weight = period;
	cell->weight_squared = units * units;

	hash = hash_stack(cell);
	counted = bpf_map_lookup_elem(&stacks, &hash);
	if (!counted) {
		if (!bpf_map_update_elem(&stacks, &hash, cell, BPF_NOEXIST))
			return 0;
		/* Another CPU may have inserted the stack first. */
		counted = bpf_map_lookup_elem(&stacks, &hash);
		if (!counted) {
			count_loss(LOSS_STACK_MAP_FULL);
			return 0;
		}
	}
	add_atomic(&counted->samples, 1);
	add_atomic(&counted->weight, period);
	add_atomic(&counted->weight_squared, units * units);
	return 0;
}

SEC("perf_event")
int on_cpu_clock(struct bpf_perf_event_data *ctx)
{
	return sample(ctx, SAMPLE_CPU_CLOCK);
}

SEC("perf_event")
int on_cycles(struct bpf_perf_event_data *ctx)
{
	return sample(ctx, SAMPLE_CYCLES);
}

SEC("perf_event")
int on_ref_cycles(struct bpf_perf_event_data *ctx)
{
	return sample(ctx, SAMPLE_REF_CYCLES);
}

SEC("perf_event")
int on_llc_load_misses(struct bpf_perf_event_data *ctx)
{
	return sample(ctx, SAMPLE_LLC_LOAD_MISSES);
}

SEC("perf_event")
int on_l1d_load_misses(struct bpf_perf_event_data *ctx)
{
	return sample(ctx, SAMPLE_L1D_LOAD_MISSES);
}
