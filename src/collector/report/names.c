// SPDX-License-Identifier: GPL-2.0-only
#include "names.h"

#include <linux/net.h>
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
	[WATCH_UNREGISTERED] = "unregistered",
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
	[LOSS_WATCHED_WAITING_MAP_FULL] = "watch_waiting_map_full",
	[LOSS_WATCHED_SOCKET_MAP_FULL] = "watch_socket_map_full",
	[LOSS_SPLICE_UNCOUNTED] = "splices_before_their_hook",
	[LOSS_WATCHED_UNREADABLE] = "watch_arguments_unreadable",
	[LOSS_CALL_FILE_CLOSED] = "calls_file_closed",
	[LOSS_PROGRAM_MAP_FULL] = "watch_program_map_full",
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
	CALL(MAP, "receive by mapping"), CALL(TEE, "tee"),
	CALL(IO_URING, "io_uring"), CALL(OTHER, "other"),
};

/* A call and one of its numbers, on the architecture that this is compiled for or in its 32-bit programs. */
struct numbered {
	enum number_table table;
	enum call call;
	int number;
};

#define NUMBER(id, number) { NUMBERS, CALL_##id, number }
#define NUMBER_32BIT(id, number) { NUMBERS_32BIT, CALL_##id, number }

static const struct numbered numbers[] = {
	NUMBER(RECVFROM, __NR_recvfrom),
	NUMBER(RECVMSG, __NR_recvmsg),
	NUMBER(RECVMMSG, __NR_recvmmsg),
	NUMBER(SENDTO, __NR_sendto),
	NUMBER(SENDMSG, __NR_sendmsg),
	NUMBER(SENDMMSG, __NR_sendmmsg),
	NUMBER(READ, __NR_read),
	NUMBER(READV, __NR_readv),
	/* Sockets cannot be read at a position; these calls are followed for files. */
	NUMBER(READ, __NR_pread64),
	NUMBER(READV, __NR_preadv),
	NUMBER(READV, __NR_preadv2),
	NUMBER(WRITE, __NR_write),
	NUMBER(WRITEV, __NR_writev),
	NUMBER(SENDFILE, __NR_sendfile),
	NUMBER(SPLICE, __NR_splice),
	NUMBER(VMSPLICE, __NR_vmsplice),
	NUMBER(TEE, __NR_tee),
	NUMBER(MAP, __NR_getsockopt),
	NUMBER(IO_URING, __NR_io_uring_enter),
	/*
	 * These numbers are the same on i386 (arch/x86/entry/syscalls/syscall_32.tbl) and arm
	 * (arch/arm64/tools/syscall_32.tbl).
	 */
	NUMBER_32BIT(READ, 3),
	NUMBER_32BIT(WRITE, 4),
	NUMBER_32BIT(READV, 145),
	NUMBER_32BIT(READ, 180),
	NUMBER_32BIT(WRITEV, 146),
	NUMBER_32BIT(SENDFILE, 187),
	NUMBER_32BIT(SENDFILE, 239),
	NUMBER_32BIT(RECVMMSG, 417),
	NUMBER_32BIT(IO_URING, 426),
#if defined(__x86_64__)
	NUMBER_32BIT(SOCKETCALL, 102),
	NUMBER_32BIT(READV, 333),
	NUMBER_32BIT(READV, 378),
	NUMBER_32BIT(SPLICE, 313),
	NUMBER_32BIT(TEE, 315),
	NUMBER_32BIT(VMSPLICE, 316),
	NUMBER_32BIT(RECVMMSG, 337),
	NUMBER_32BIT(SENDMMSG, 345),
	NUMBER_32BIT(MAP, 365),
	NUMBER_32BIT(SENDTO, 369),
	NUMBER_32BIT(SENDMSG, 370),
	NUMBER_32BIT(RECVFROM, 371),
	NUMBER_32BIT(RECVMSG, 372),
	NUMBER_32BIT(SENDTO, SOCKETCALLS_AT + SYS_SEND),
	NUMBER_32BIT(RECVFROM, SOCKETCALLS_AT + SYS_RECV),
	NUMBER_32BIT(SENDTO, SOCKETCALLS_AT + SYS_SENDTO),
	NUMBER_32BIT(RECVFROM, SOCKETCALLS_AT + SYS_RECVFROM),
	NUMBER_32BIT(MAP, SOCKETCALLS_AT + SYS_GETSOCKOPT),
	NUMBER_32BIT(SENDMSG, SOCKETCALLS_AT + SYS_SENDMSG),
	NUMBER_32BIT(RECVMSG, SOCKETCALLS_AT + SYS_RECVMSG),
	NUMBER_32BIT(RECVMMSG, SOCKETCALLS_AT + SYS_RECVMMSG),
	NUMBER_32BIT(SENDMMSG, SOCKETCALLS_AT + SYS_SENDMMSG),
	/* Numbers that exist only in x32; x32 shares all others with x86-64 (syscall_64.tbl). */
	NUMBER(READV, 515),
	NUMBER(WRITEV, 516),
	NUMBER(RECVFROM, 517),
	NUMBER(SENDMSG, 518),
	NUMBER(RECVMSG, 519),
	NUMBER(VMSPLICE, 532),
	NUMBER(RECVMMSG, 537),
	NUMBER(SENDMMSG, 538),
	NUMBER(MAP, 542),
#elif defined(__aarch64__)
	NUMBER_32BIT(SENDTO, 289), /* send */
	NUMBER_32BIT(SENDTO, 290),
	NUMBER_32BIT(RECVFROM, 291), /* recv */
	NUMBER_32BIT(RECVFROM, 292),
	NUMBER_32BIT(MAP, 295),
	NUMBER_32BIT(SENDMSG, 296),
	NUMBER_32BIT(RECVMSG, 297),
	NUMBER_32BIT(SPLICE, 340),
	NUMBER_32BIT(TEE, 342),
	NUMBER_32BIT(READV, 361),
	NUMBER_32BIT(READV, 392),
	NUMBER_32BIT(VMSPLICE, 343),
	NUMBER_32BIT(RECVMMSG, 365),
	NUMBER_32BIT(SENDMMSG, 374),
#endif
};

static bool is_followed(enum call call, bool watching)
{
	return watching ? call != CALL_VMSPLICE : call < CALL_READ || call == CALL_IO_URING;
}

void names__fill_calls(volatile __u8 call_of_nr[NUMBER_TABLES][SYSCALLS_MAX], bool watching)
{
	for (unsigned int i = 0; i < sizeof(numbers) / sizeof(*numbers); i++)
		if (is_followed(numbers[i].call, watching))
			call_of_nr[numbers[i].table][numbers[i].number] = numbers[i].call;
}
