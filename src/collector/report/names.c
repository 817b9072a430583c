// SPDX-License-Identifier: GPL-2.0
#include "names.h"

#include <sys/syscall.h>

const char *side_names[] = {
	[SIDE_SENDER] = "sender", [SIDE_RECEIVER] = "receiver", [SIDE_OTHER] = "other",
};
_Static_assert(sizeof(side_names) / sizeof(*side_names) == SIDE_OTHER + 1, "side_names");

void names__watch(void)
{
	side_names[SIDE_SENDER] = "target";
}

const char *const watch_total_names[WATCH_TOTAL_CNT] = {
	[WATCH_FORKS] = "forks", [WATCH_BIRTHS] = "births", [WATCH_EXITS] = "exits",
	[WATCH_ENDED_NS] = "ended_ns",
	[WATCH_COMPLETIONS] = "completions", [WATCH_COPIED] = "copied",
	[WATCH_NOTIFICATIONS] = "notifications", [WATCH_UNSEEN] = "unseen",
	[WATCH_UNTOLD] = "untold",
};

const char *const direction_names[DIRECTION_CNT] = {
	[DIRECTION_SEND] = "send", [DIRECTION_RECEIVE] = "receive",
	[DIRECTION_COPY_OUT] = "copy_out", [DIRECTION_PEEK] = "peek", [DIRECTION_MAPPED] = "mapped",
	[DIRECTION_TRUNCATED] = "truncated",
};

const char *const protocol_names[PROTOCOL_CNT] = {
	[PROTOCOL_TCP] = "tcp", [PROTOCOL_UDP] = "udp", [PROTOCOL_MPTCP] = "mptcp",
	[PROTOCOL_UNIX_STREAM] = "unix_stream", [PROTOCOL_UNIX_DGRAM] = "unix_dgram",
	[PROTOCOL_SOCKMAP] = "sockmap",
};

const char *const sample_names[SAMPLE_CNT] = {
	[SAMPLE_CPU_CLOCK] = "cpu-clock", [SAMPLE_CYCLES] = "cycles",
	[SAMPLE_REF_CYCLES] = "ref-cycles",
	[SAMPLE_LLC_LOAD_MISSES] = "LLC-load-misses",
	[SAMPLE_L1D_LOAD_MISSES] = "L1-dcache-load-misses",
};

const char *const owner_names[OWNER_CNT] = {
	[OWNER_TARGET] = "target", [OWNER_OTHERS] = "others",
};

const char *const byte_hook_names[BYTES_CNT] = {
	[BYTES_SEND] = "send_bytes", [BYTES_RECEIVE] = "receive_bytes",
	[BYTES_COPY_OUT] = "copy_out_bytes", [BYTES_URING] = "uring_bytes",
};

const char *const loss_names[LOSS_CNT] = {
	[LOSS_STACK_MAP_FULL] = "samples_stack_map_full",
	[LOSS_STACK_UNREADABLE] = "samples_stack_unreadable",
	[LOSS_TASK_MAP_FULL] = "calls_task_map_full",
	[LOSS_CALL_STACK_MAP_FULL] = "functions_task_map_full",
	[LOSS_CALL_STACK_OVERFLOW] = "functions_too_deep",
	[LOSS_CALL_STACK_BROKEN] = "functions_broken",
	[LOSS_LOOK_STOPPED] = "functions_look_stopped",
	[LOSS_ZEROCOPY_MAP_FULL] = "functions_zerocopy_map_full",
	[LOSS_COUNTER_UNREADABLE] = "functions_counter_unreadable",
	[LOSS_WATCHED_MAP_FULL] = "watch_process_map_full",
	[LOSS_WATCHED_ZEROCOPY_MAP_FULL] = "watch_zerocopy_map_full",
	[LOSS_WATCHED_SOCKET_MAP_FULL] = "watch_socket_map_full",
	[LOSS_SPLICE_UNCOUNTED] = "splices_before_their_hook",
	[LOSS_WATCHED_UNREADABLE] = "watch_mapped_unreadable",
	[LOSS_CALL_FILE_CLOSED] = "calls_file_closed",
};

const char *const category_names[CATEGORY_CNT] = {
	[CATEGORY_COPY_IN] = "copy_in", [CATEGORY_PIN] = "pin", [CATEGORY_DEFERRED] = "deferred",
	[CATEGORY_SILENT] = "silent", [CATEGORY_COPY_OUT] = "copy_out", [CATEGORY_MAPPED] = "mapped",
};

#define CALL(id, name) [CALL_##id] = name
const char *const call_names[CALL_CNT] = {
	CALL(NONE, "none"), CALL(RECVFROM, "recvfrom"), CALL(RECVMSG, "recvmsg"),
	CALL(RECVMMSG, "recvmmsg"), CALL(SENDTO, "sendto"), CALL(SENDMSG, "sendmsg"),
	CALL(SENDMMSG, "sendmmsg"), CALL(READ, "read"), CALL(READV, "readv"), CALL(WRITE, "write"),
	CALL(WRITEV, "writev"), CALL(SENDFILE, "sendfile"), CALL(SPLICE, "splice"),
	CALL(VMSPLICE, "vmsplice"), CALL(SPLICE_READ, "splice from a socket"),
	CALL(SPLICE_MEMORY, "splice after vmsplice"), CALL(SPLICE_WRITTEN, "splice after write"),
	CALL(SPLICE_RELAYED, "splice between sockets"),
	CALL(MAP, "receive by mapping"),
	CALL(IO_URING, "io_uring"), CALL(OTHER, "other"),
};

/* Of the architecture that this is compiled for; -1: no system call. */
static const int call_numbers[CALL_CNT] = {
	[CALL_NONE] = -1, [CALL_RECVFROM] = __NR_recvfrom, [CALL_RECVMSG] = __NR_recvmsg,
	[CALL_RECVMMSG] = __NR_recvmmsg, [CALL_SENDTO] = __NR_sendto, [CALL_SENDMSG] = __NR_sendmsg,
	[CALL_SENDMMSG] = __NR_sendmmsg, [CALL_READ] = __NR_read, [CALL_READV] = __NR_readv,
	[CALL_WRITE] = __NR_write, [CALL_WRITEV] = __NR_writev, [CALL_SENDFILE] = __NR_sendfile,
	[CALL_SPLICE] = __NR_splice, [CALL_VMSPLICE] = __NR_vmsplice, [CALL_SPLICE_READ] = -1,
	[CALL_SPLICE_MEMORY] = -1, [CALL_SPLICE_WRITTEN] = -1, [CALL_SPLICE_RELAYED] = -1, [CALL_MAP] = __NR_getsockopt,
	[CALL_IO_URING] = __NR_io_uring_enter, [CALL_OTHER] = -1,
};

void names__fill_calls(volatile __u8 *call_of_nr, bool watching)
{
	for (int call = 1; call < CALL_CNT; call++)
		if ((watching ? call != CALL_VMSPLICE : call < CALL_READ || call == CALL_IO_URING) && call_numbers[call] >= 0 &&
		    call_numbers[call] < SYSCALLS_MAX)
			call_of_nr[call_numbers[call]] = call;
}
