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

/*
 * The functions that loops call are global: the verifier looks at each once, and not at each call, and sees numbers only.
 *
 * Empty buffers are counted, and have no address.
 */
__noinline int count_buffer(__u32 index, __u64 vector, __u32 first)
{
	struct shape_cell *cell = shape_of(index);
	struct iovec buffer;

	if (!cell)
		return 0;
	if (bpf_probe_read_user(&buffer, sizeof(buffer), (const void *)vector)) {
		cell->unreadable++;
		return 0;
	}
	if (!buffer.iov_len)
		return 0;
	if (first)
		count_first(cell, (__u64)buffer.iov_base);
	count_address(cell, (__u64)buffer.iov_base);
	return 0;
}

__noinline int count_buffers(__u32 index, __u64 vector, __u64 count)
{
	struct shape_cell *cell = shape_of(index);

	if (cell)
		count_message(cell, count);
	for (__u32 i = 0; i < BUFFERS_LOOKED && i < count; i++)
		count_buffer(index, vector + i * sizeof(struct iovec), !i);
	return 0;
}

__noinline int count_header(__u32 index, __u64 header)
{
	struct shape_cell *cell;
	struct user_msghdr message;

	if (!bpf_probe_read_user(&message, sizeof(message), (const void *)header))
		return count_buffers(index, (__u64)message.msg_iov, message.msg_iovlen);
	cell = shape_of(index);
	if (cell) {
		cell->messages++;
		cell->unreadable++;
	}
	return 0;
}

static __always_inline void count_one(struct shape_cell *cell, __u64 address)
{
	count_first(cell, address);
	count_address(cell, address);
	count_message(cell, 1);
}

SEC("?tp_btf")
int BPF_PROG(on_shape, struct pt_regs *regs, long ret)
{
	long nr = SYSCALL_NR(regs);
	__u32 protocol, call, index;
	struct shape_cell *cell;
	__u64 second;

	if (ret < 0 || current_side() == SIDE_OTHER)
		return 0;
	call = call_of(nr);
	if (call != CALL_SENDTO && call != CALL_SENDMSG && call != CALL_SENDMMSG && call != CALL_WRITE && call != CALL_WRITEV)
		return 0;
	protocol = protocol_of_fd(SYSCALL_FD(regs));
	if (protocol == PROTOCOL_CNT)
		return 0;
	index = protocol * CALL_CNT + call;
	second = SYSCALL_SECOND(regs);
	switch (call) {
	case CALL_SENDMMSG:
		for (__u32 i = 0; i < MESSAGES_LOOKED && i < ret; i++)
			count_header(index, second + i * sizeof(struct mmsghdr));
		break;
	case CALL_SENDMSG:
		count_header(index, second);
		break;
	case CALL_WRITEV:
		count_buffers(index, second, SYSCALL_THIRD(regs));
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
	index = PROTOCOL_TCP * CALL_CNT + current_call();
	cell = shape_of(index);
	if (!cell)
		return 0;
	cell->sends++;
	cell->rounds += rounds;
	cell->rounds_per_send[BOUNDED(count_slot(rounds), COUNT_SLOTS)]++;
	return 0;
}
