// SPDX-License-Identifier: GPL-2.0
#include "names.h"

#include <sys/syscall.h>

const char *const side_names[] = {
	[SIDE_SENDER] = "sender",
	[SIDE_RECEIVER] = "receiver",
	[SIDE_OTHER] = "other",
};
_Static_assert(sizeof(side_names) / sizeof(*side_names) == SIDE_OTHER + 1, "side_names");

const char *const sample_names[SAMPLE_CNT] = {
	[SAMPLE_CPU_CLOCK] = "cpu-clock",
	[SAMPLE_CYCLES] = "cycles",
	[SAMPLE_LLC_LOAD_MISSES] = "LLC-load-misses",
	[SAMPLE_L1D_LOAD_MISSES] = "L1-dcache-load-misses",
};

const char *const sample_units[SAMPLE_CNT] = {
	[SAMPLE_CPU_CLOCK] = "ns",
	[SAMPLE_CYCLES] = "cycles",
	[SAMPLE_LLC_LOAD_MISSES] = "misses",
	[SAMPLE_L1D_LOAD_MISSES] = "misses",
};

const char *const byte_hook_names[BYTES_CNT] = {
	[BYTES_SEND] = "send_bytes",
	[BYTES_RECEIVE] = "receive_bytes",
	[BYTES_COPY_OUT] = "copy_out_bytes",
};

const char *const loss_names[LOSS_CNT] = {
	[LOSS_STACK_MAP_FULL] = "samples_stack_map_full",
	[LOSS_STACK_UNREADABLE] = "samples_stack_unreadable",
	[LOSS_TASK_MAP_FULL] = "calls_task_map_full",
	[LOSS_SHADOW_MAP_FULL] = "functions_task_map_full",
	[LOSS_SHADOW_OVERFLOW] = "functions_too_deep",
	[LOSS_SHADOW_BROKEN] = "functions_broken",
	[LOSS_COUNTER_UNREADABLE] = "functions_counter_unreadable",
};

const char *const category_names[CATEGORY_CNT] = {
	[CATEGORY_NONE] = "none",
	[CATEGORY_SEND] = "send",
	[CATEGORY_RECEIVE] = "receive",
	[CATEGORY_COPY_IN] = "copy_in",
	[CATEGORY_PIN] = "pin",
	[CATEGORY_DEFERRED] = "deferred",
	[CATEGORY_COMPLETION] = "completion",
	[CATEGORY_COPY_OUT] = "copy_out",
	[CATEGORY_TRANSMIT] = "transmit",
	[CATEGORY_SKB] = "skb_alloc",
	[CATEGORY_MEMORY] = "memory",
	[CATEGORY_SOFTIRQ] = "softirq",
};

#define CALL(id, name) [CALL_##id] = name
const char *const call_names[CALL_CNT] = {
	CALL(NONE, "none"),
	CALL(RECVFROM, "recvfrom"),
	CALL(RECVMSG, "recvmsg"),
	CALL(RECVMMSG, "recvmmsg"),
	CALL(SENDTO, "sendto"),
	CALL(SENDMSG, "sendmsg"),
	CALL(SENDMMSG, "sendmmsg"),
};

const int call_numbers[CALL_CNT] = {
	[CALL_NONE] = -1,
	[CALL_RECVFROM] = __NR_recvfrom,
	[CALL_RECVMSG] = __NR_recvmsg,
	[CALL_RECVMMSG] = __NR_recvmmsg,
	[CALL_SENDTO] = __NR_sendto,
	[CALL_SENDMSG] = __NR_sendmsg,
	[CALL_SENDMMSG] = __NR_sendmmsg,
};
