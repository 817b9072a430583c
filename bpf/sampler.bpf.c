// SPDX-License-Identifier: GPL-2.0
/*
 * sampler.bpf.c - where the CPU time and the cache misses go: kernel stacks, counted in a map.
 *
 * An object of its own (collector.mk) without CO-RE relocations, so that it loads on kernels without BTF, where nothing
 * else does.
 * One event per CPU interrupts whoever runs. Tasks that are not targets are sampled too: ksoftirqd and interrupts on an idle CPU
 * do protocol work for both sides. User space drops what holds no softirq frame.
 */
/* The context of a program is no structure of the kernel that could change: no relocations for it. */
#define BPF_NO_PRESERVE_ACCESS_INDEX
#include "target.bpf.h"

#include "map.bpf.h"
#include "stack_hash.h"

MAP(HASH, stacks, __u64, struct stack_cell, STACKS_MAX);

/* Samples taken so far: of none there is nothing to read. */
__u64 samples_taken;

/* While the collector tries whether events interrupt, that is all that is noted. */
__u32 trying;
__u64 interrupts[SAMPLE_CNT];

/* A stack does not fit on the BPF stack (512 bytes). */
MAP(PERCPU_ARRAY, scratch, __u32, struct stack_cell, SAMPLE_CNT);

/*
 * The packet that is being handled, or was last: no longer ago than the tick before, else the CPU may have done anything
 * since. User space knows from the stack which of the two (samples.py).
 */
#define OWNED_TICKS 1

struct handled_map handled_packets SEC(".maps");

static __always_inline __u32 owner_now(void)
{
	struct handled_packet *handled;
	__u32 zero = 0;

	handled = bpf_map_lookup_elem(&handled_packets, &zero);
	if (!handled || bpf_jiffies64() - handled->jiffies > OWNED_TICKS)
		return OWNER_NOT_KNOWN;
	return handled->owner;
}

/* Where a watched program was in user mode: user space knows whether that is code that copies (user_code.py). */
static __always_inline __u32 user_pid(const struct stack_cell *cell, __u32 event)
{
	if (watch_mode == WATCH_NOBODY || cell->depth || cell->side == SIDE_OTHER)
		return 0;
	if (event != SAMPLE_CPU_CLOCK && event != SAMPLE_CYCLES && event != SAMPLE_REF_CYCLES)
		return 0;
	return bpf_get_current_pid_tgid() >> 32;
}

static __always_inline void name_thread(struct stack_cell *cell)
{
	cell->thread[0] = 0;
	cell->thread[1] = 0;
	if (watch_mode != WATCH_NOBODY && cell->side != SIDE_OTHER)
		bpf_get_current_comm(cell->thread, sizeof(cell->thread));
}

/*
 * Where the function that runs goes back to, if it calls none and has put nothing on the stack, as memcpy() of all libraries: user
 * space knows whether it is so (user_code.py). On arm64 the link register has it.
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

/* What a function that copies, or its caller, has on the stack. */
#define FRAME_BYTES_MAX (1 << 16)

/*
 * The same of a function that has put a frame on the stack, of which a register knows: beside it stands where it goes back to. The
 * register of code without frames has anything: what it points at would make a kind of each sample.
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
	struct stack_cell *cell, *seen;
	__u64 period = ctx->sample_period, units = period / WEIGHT_UNIT(event);
	__u64 hash;
	long bytes;

	if (trying) {
		add_atomic(&interrupts[event], 1);
		return 0;
	}
	cell = bpf_map_lookup_elem(&scratch, &event);
	if (!cell)
		return 0;

	/* In user mode there is no kernel stack: bpf_get_stack() says -EFAULT and the depth is 0. */
	bytes = bpf_get_stack(ctx, cell->frames, sizeof(cell->frames), 0);
	if (bytes < 0 && bytes != -14 /* EFAULT */) {
		count_loss(LOSS_STACK_UNREADABLE);
		return 0;
	}
	cell->depth = bytes < 0 ? 0 : bytes / sizeof(__u64);
	cell->side = current_side();
	add_atomic(&samples_taken, 1);
	cell->event = event;
	cell->owner = cell->side == SIDE_OTHER ? owner_now() : OWNER_NOT_KNOWN;
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
	seen = bpf_map_lookup_elem(&stacks, &hash);
	if (!seen) {
		if (!bpf_map_update_elem(&stacks, &hash, cell, BPF_NOEXIST))
			return 0;
		/* Another CPU may have been first. */
		seen = bpf_map_lookup_elem(&stacks, &hash);
		if (!seen) {
			count_loss(LOSS_STACK_MAP_FULL);
			return 0;
		}
	}
	add_atomic(&seen->samples, 1);
	add_atomic(&seen->weight, period);
	add_atomic(&seen->weight_squared, units * units);
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
