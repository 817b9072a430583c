// SPDX-License-Identifier: GPL-2.0-only
/*
 * shape.bpf.c - watched programs: buffers that they pass to send calls, and rounds of TCP for these buffers.
 *
 * Buffers are read when the call returns, from its arguments, which are still in the registers. Failed calls are
 * therefore skipped, and data that the kernel has just read is in memory. io_uring has no such arguments; sendfile and
 * splice have no buffers.
 */
#include "map.bpf.h"
#include "watch.bpf.h"

/* Defined in functions.bpf.c; set by the collector. */
extern const volatile __u32 page_bytes;

MAP(PERCPU_ARRAY, shape_cells, __u32, struct shape_cell, SHAPE_CELLS);
/* The cells that the collector has to read, as in volume_used. */
__u8 shape_used[SHAPE_SLOTS];

/* Keyed by thread. LRU, so that threads that have exited make room for new ones. */
MAP(LRU_HASH, sending_tasks, __u32, struct sending_task, TASKS_MAX);

static __always_inline struct shape_cell *shape_of(__u32 index)
{
	shape_used[BOUNDED(index, SHAPE_SLOTS)] = 1;
	return bpf_map_lookup_elem(&shape_cells, &index);
}

static __always_inline struct sending_task *sending_task(void)
{
	__u32 tid = bpf_get_current_pid_tgid();
	struct sending_task fresh = {}, *task = bpf_map_lookup_elem(&sending_tasks, &tid);

	if (task)
		return task;
	bpf_map_update_elem(&sending_tasks, &tid, &fresh, BPF_NOEXIST);
	return bpf_map_lookup_elem(&sending_tasks, &tid);
}

static __always_inline __u32 count_slot(__u64 count)
{
	__u32 slot = count < COUNTS_EXACT ? count : COUNTS_EXACT - 4 + size_slot(count);

	return slot < COUNT_SLOTS ? slot : COUNT_SLOTS - 1;
}

static __always_inline void count_address(struct shape_cell *cell, __u64 address)
{
	cell->looked++;
	if (!(address & (page_bytes - 1)))
		cell->page_aligned++;
	else if (!(address & (CACHE_LINE_BYTES - 1)))
		cell->line_aligned++;
}

static __always_inline void count_message(struct shape_cell *cell, __u64 buffers)
{
	cell->messages++;
	cell->buffers += buffers;
	cell->buffers_per_message[BOUNDED(count_slot(buffers), COUNT_SLOTS)]++;
}

static __always_inline void count_first(struct shape_cell *cell, __u64 address)
{
	struct sending_task *task = sending_task();

	if (!task)
		return;
	cell->repeated += task->last_address == address;
	task->last_address = address;
}

/* Layout of struct iovec, and position of the vector and its length in struct msghdr, in words of 32 or 64 bits. */
#define IOVEC_WORDS 2
#define VECTOR_AT_WORD 2
/* Size of struct mmsghdr; include/net/compat.h defines the 32-bit one. */
#define MMSGHDR_BYTES 64
#define MMSGHDR_BYTES_32BIT 32

static __always_inline __u32 word_bytes(__u32 narrow)
{
	return narrow ? sizeof(__u32) : sizeof(__u64);
}

static __always_inline long read_two_words(__u64 words[2], __u64 address, __u32 narrow)
{
	__u32 short_words[2];

	if (!narrow)
		return bpf_probe_read_user(words, 2 * sizeof(*words), (const void *)address);
	if (bpf_probe_read_user(short_words, sizeof(short_words), (const void *)address))
		return -1;
	words[0] = short_words[0];
	words[1] = short_words[1];
	return 0;
}

#define BUFFER_SMALL 1
#define BUFFER_LARGE 2

static __always_inline int buffer_kind(__u64 bytes)
{
	if (bytes >= LARGE_BUFFER_BYTES)
		return BUFFER_LARGE;
	return bytes < SMALL_BUFFER_BYTES ? BUFFER_SMALL : 0;
}

/*
 * Functions that loops call are global: the verifier then checks each function once instead of at each call, and sees
 * their arguments as plain numbers. They return the kinds of buffers (BUFFER_SMALL, BUFFER_LARGE) that they met.
 *
 * Empty buffers are counted, but their address is not inspected.
 */
__noinline int count_buffer(__u32 index, __u64 vector, __u32 narrow, __u32 first)
{
	struct shape_cell *cell = shape_of(index);
	__u64 buffer[2] = {};

	if (!cell)
		return 0;
	if (read_two_words(buffer, vector, narrow)) {
		cell->unreadable++;
		return 0;
	}
	if (!buffer[1])
		return 0;
	if (first)
		count_first(cell, buffer[0]);
	count_address(cell, buffer[0]);
	return buffer_kind(buffer[1]);
}

__noinline int count_buffers(__u32 index, __u64 vector, __u64 count, __u32 narrow)
{
	struct shape_cell *cell = shape_of(index);
	int kinds = 0;

	if (cell)
		count_message(cell, count);
	for (__u32 i = 0; i < BUFFERS_LOOKED && i < count; i++)
		kinds |= count_buffer(index, vector + i * IOVEC_WORDS * word_bytes(narrow), narrow, !i);
	return kinds;
}

__noinline int count_header(__u32 index, __u64 header, __u32 narrow)
{
	struct shape_cell *cell;
	__u64 vector[2] = {};

	if (!read_two_words(vector, header + VECTOR_AT_WORD * word_bytes(narrow), narrow))
		return count_buffers(index, vector[0], vector[1], narrow);
	cell = shape_of(index);
	if (cell) {
		cell->messages++;
		cell->unreadable++;
	}
	return 0;
}

static __always_inline void count_mixed(__u32 index, int kinds, __u64 flags)
{
	struct shape_cell *cell = kinds == (BUFFER_SMALL | BUFFER_LARGE) && flags & MSG_ZEROCOPY ? shape_of(index) : NULL;

	if (cell)
		cell->mixed++;
}

/* Inspect the message of a zero-copy request of io_uring, for uring.bpf.c. */
__noinline int count_zerocopy_header(__u32 index, __u64 header)
{
	count_mixed(index, count_header(index, header, 0), MSG_ZEROCOPY);
	return 0;
}

static __always_inline void count_single_buffer(struct shape_cell *cell, __u64 address)
{
	count_first(cell, address);
	count_address(cell, address);
	count_message(cell, 1);
}

SEC("?tp_btf")
int BPF_PROG(on_shape, struct pt_regs *regs, int ret)
{
	__u32 protocol, call, index, narrow;
	struct system_call syscall;
	struct shape_cell *cell;
	__u64 second;
	int kinds;

	if (ret < 0 || current_side() == SIDE_OTHER)
		return 0;
	call = read_system_call(&syscall, regs);
	if (call != CALL_SENDTO && call != CALL_SENDMSG && call != CALL_SENDMMSG && call != CALL_WRITE && call != CALL_WRITEV)
		return 0;
	protocol = protocol_of_fd(FIRST_ARGUMENT(&syscall));
	if (protocol == PROTOCOL_CNT)
		return 0;
	index = protocol * CALL_CNT + call;
	second = SECOND_ARGUMENT(&syscall);
	narrow = syscall.abi != ABI_NATIVE;
	switch (call) {
	case CALL_SENDMMSG:
		for (__u32 i = 0; i < MESSAGES_LOOKED && i < (__u32)ret; i++) {
			kinds = count_header(index, second + i * (narrow ? MMSGHDR_BYTES_32BIT : MMSGHDR_BYTES), narrow);
			count_mixed(index, kinds, FOURTH_ARGUMENT(&syscall));
		}
		break;
	case CALL_SENDMSG:
		kinds = count_header(index, second, narrow);
		count_mixed(index, kinds, THIRD_ARGUMENT(&syscall));
		break;
	case CALL_WRITEV:
		count_buffers(index, second, THIRD_ARGUMENT(&syscall), narrow);
		break;
	default:
		cell = shape_of(index);
		if (cell)
			count_single_buffer(cell, second);
	}
	return 0;
}

/*
 * The tracepoint is at the top of the loop in tcp_sendmsg_locked(). One iteration (round) fills a packet or a page
 * fragment, or waits for room.
 */
SEC("?tp_btf")
int BPF_PROG(on_round, const struct sock *sk)
{
	struct sending_task *task = current_side() == SIDE_OTHER ? NULL : sending_task();

	if (task)
		task->rounds++;
	return 0;
}

/* Count the rounds of one send of the socket layer. The sizes of sends are counted per such send, too. */
SEC("?tp_btf")
int BPF_PROG(on_round_end, struct sock *sk, int ret, int flags)
{
	struct sending_task *task;
	struct system_call syscall;
	struct shape_cell *cell;
	__u32 tid = bpf_get_current_pid_tgid();
	__u32 rounds, index;

	task = bpf_map_lookup_elem(&sending_tasks, &tid);
	if (!task || !task->rounds)
		return 0;
	rounds = task->rounds;
	task->rounds = 0;
	if (ret < 0)
		return 0;
	index = PROTOCOL_TCP * CALL_CNT + current_call(&syscall);
	cell = shape_of(index);
	if (!cell)
		return 0;
	cell->sends++;
	cell->rounds += rounds;
	cell->rounds_per_send[BOUNDED(count_slot(rounds), COUNT_SLOTS)]++;
	return 0;
}
