// SPDX-License-Identifier: GPL-2.0
/*
 * hook_kinds.bpf.c - one almost empty program for each way to hook: it counts the events of one process, and on request
 * reads the clock or up to four counters. So what is measured is the way into it.
 */
#include <vmlinux.h>

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

#define COUNTERS_MAX 4
#define EFAULT 14

const volatile __u32 clock_reads;
const volatile __u32 counter_reads;
const volatile __u32 stack_reads;
__u32 target_tgid;
/* Of one thread, which one program at a time interrupts: no two of them add at once. */
__u64 events;
__u64 failed;
__u64 sink;
__u64 frames[127];

struct {
	__uint(type, BPF_MAP_TYPE_PERF_EVENT_ARRAY);
	__uint(max_entries, COUNTERS_MAX);
	__uint(key_size, sizeof(__u32));
	__uint(value_size, sizeof(__u32));
} counters SEC(".maps");

static __always_inline void read_counter(__u32 index)
{
	struct bpf_perf_event_value value = {};

	if (bpf_perf_event_read_value(&counters, index, &value, sizeof(value)))
		failed++;
	sink += value.counter;
}

static __always_inline int count(void)
{
	if (bpf_get_current_pid_tgid() >> 32 != target_tgid)
		return 0;
	events++;
	if (clock_reads)
		sink += bpf_ktime_get_ns();
	_Pragma("unroll") for (__u32 i = 0; i < COUNTERS_MAX; i++) if (i < counter_reads)
		read_counter(i);
	return 0;
}

#define KIND(name, section)                \
	SEC(section) int name(void *ctx)   \
	{                                  \
		return count();            \
	}

/* Those without a target get it from the driver. */
KIND(by_tp_btf, "?tp_btf")
KIND(by_raw_tp, "?raw_tp")
KIND(by_tracepoint, "?tp")
KIND(by_fentry, "?fentry")
KIND(by_fexit, "?fexit")
KIND(by_kprobe, "?kprobe")
KIND(by_kretprobe, "?kretprobe")

SEC("?perf_event")
int by_perf_event(struct bpf_perf_event_data *ctx)
{
	long bytes;

	if (stack_reads) {
		bytes = bpf_get_stack(ctx, frames, sizeof(frames), 0);
		if (bytes < 0 && bytes != -EFAULT)
			failed++;
		if (bytes > 0)
			sink += bytes / sizeof(frames[0]);
	}
	return count();
}

char LICENSE[] SEC("license") = "GPL";
