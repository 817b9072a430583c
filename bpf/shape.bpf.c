// SPDX-License-Identifier: GPL-2.0
/*
 * shape.bpf.c - a program that we did not write: how it hands over what it sends, and how often TCP goes round for it.
 *
 * Buffers are read when the call returns, from its arguments, which are still in the registers: so a call that failed is
 * left out, and what the kernel has just read is in memory. io_uring has no such arguments, sendfile and splice have no
 * buffers.
 */
#include "map.bpf.h"
#include "watch.bpf.h"

/* As in functions.bpf.c: set by the collector. */
extern const volatile __u32 page_bytes;

MAP(PERCPU_ARRAY, shape_cells, __u32, struct shape_cell, SHAPE_CELLS);
/* As volume_used: which of them the collector has to read. */
__u8 shape_used[SHAPE_SLOTS];

/* By thread; one that is gone leaves its place to the next. */
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

/* struct iovec, and of struct msghdr where its vector and its length are: in words of 32 or 64 bits. */
#define IOVEC_WORDS 2
#define VECTOR_AT_WORD 2
/* struct mmsghdr; include/net/compat.h has those of 32 bits. */
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

static __always_inline int kind_of(__u64 bytes)
{
	if (bytes >= LARGE_BUFFER_BYTES)
		return BUFFER_LARGE;
	return bytes < SMALL_BUFFER_BYTES ? BUFFER_SMALL : 0;
}

/*
 * The functions that loops call are global: the verifier looks at each once, and not at each call, and sees numbers only. They
 * return which kinds of buffers there were.
 *
 * Empty buffers are counted, and have no address.
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
	return kind_of(buffer[1]);
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

static __always_inline void count_one(struct shape_cell *cell, __u64 address)
{
	count_first(cell, address);
	count_address(cell, address);
	count_message(cell, 1);
}

SEC("?tp_btf")
int BPF_PROG(on_shape, struct pt_regs *regs, int ret)
{
	__u32 protocol, call, index, narrow;
	struct system_call made;
	struct shape_cell *cell;
	__u64 second;
	int kinds;

	if (ret < 0 || current_side() == SIDE_OTHER)
		return 0;
	call = read_system_call(&made, regs);
	if (call != CALL_SENDTO && call != CALL_SENDMSG && call != CALL_SENDMMSG && call != CALL_WRITE && call != CALL_WRITEV)
		return 0;
	protocol = protocol_of_fd(FIRST_ARGUMENT(&made));
	if (protocol == PROTOCOL_CNT)
		return 0;
	index = protocol * CALL_CNT + call;
	second = SECOND_ARGUMENT(&made);
	narrow = made.abi != ABI_NATIVE;
	switch (call) {
	case CALL_SENDMMSG:
		for (__u32 i = 0; i < MESSAGES_LOOKED && i < (__u32)ret; i++) {
			kinds = count_header(index, second + i * (narrow ? MMSGHDR_BYTES_32BIT : MMSGHDR_BYTES), narrow);
			count_mixed(index, kinds, FOURTH_ARGUMENT(&made));
		}
		break;
	case CALL_SENDMSG:
		kinds = count_header(index, second, narrow);
		count_mixed(index, kinds, THIRD_ARGUMENT(&made));
		break;
	case CALL_WRITEV:
		count_buffers(index, second, THIRD_ARGUMENT(&made), narrow);
		break;
	default:
		cell = shape_of(index);
		if (cell)
			count_one(cell, second);
	}
	return 0;
}

/* The top of the loop in tcp_sendmsg_locked(): one round fills a packet, or a page fragment, or waits for room. */
SEC("?tp_btf")
int BPF_PROG(on_round, const struct sock *sk)
{
	struct sending_task *task = current_side() == SIDE_OTHER ? NULL : sending_task();

	if (task)
		task->rounds++;
	return 0;
}

/* The unit is that of the sizes: one pass through the socket layer. */
SEC("?tp_btf")
int BPF_PROG(on_round_end, struct sock *sk, int ret, int flags)
{
	struct sending_task *task;
	struct system_call made;
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
	index = PROTOCOL_TCP * CALL_CNT + current_call(&made);
	cell = shape_of(index);
	if (!cell)
		return 0;
	cell->sends++;
	cell->rounds += rounds;
	cell->rounds_per_send[BOUNDED(count_slot(rounds), COUNT_SLOTS)]++;
	return 0;
}
