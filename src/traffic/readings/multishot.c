// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <liburing.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "receiver_thread.h"

/*
 * A multishot receive request of io_uring: the kernel copies arriving data into the next free buffer and reports the number of
 * the buffer. The request ends when no buffer is free, and is then submitted again.
 */
#define BUFFERS 8u		/* a power of two, as io_uring_register_buf_ring(3) requires */
#define REQUESTS 4u
#define COMPLETIONS 64u
#define GROUP 0

struct multishot {
	struct io_uring ring;
	struct io_uring_buf_ring *buffers;
	bool armed;		/* a request is submitted */
	bool holds_buffer;	/* the last arrival is in buffer `number`, which is not yet returned to the kernel */
	unsigned short number;
};

static void close_multishot(struct receiver_thread *thread)
{
	struct multishot *multishot = thread->state;

	io_uring_queue_exit(&multishot->ring);
	free(multishot->buffers);
	free(multishot);
}

/* Open a ring for one submitting thread that also runs the completion work (Linux 6.1), or, before 6.1, a plain ring. */
static int open_ring(struct io_uring *ring)
{
	const unsigned int own = IORING_SETUP_SINGLE_ISSUER | IORING_SETUP_DEFER_TASKRUN;
	struct io_uring_params params = { .flags = IORING_SETUP_CQSIZE | own, .cq_entries = COMPLETIONS };
	int err = io_uring_queue_init_params(REQUESTS, ring, &params);

	if (err != -EINVAL)
		return err;
	params = (struct io_uring_params){ .flags = IORING_SETUP_CQSIZE, .cq_entries = COMPLETIONS };
	return io_uring_queue_init_params(REQUESTS, ring, &params);
}

static void give_buffer_to_kernel(struct receiver_thread *thread, unsigned short number)
{
	struct multishot *multishot = thread->state;
	size_t bytes = thread->options->buffer_bytes;

	io_uring_buf_ring_add(multishot->buffers, thread->to.buffer + number * bytes, bytes, number,
			      io_uring_buf_ring_mask(BUFFERS), 0);
	io_uring_buf_ring_advance(multishot->buffers, 1);
}

static int open_multishot(struct receiver_thread *thread)
{
	struct multishot *multishot = calloc(1, sizeof(*multishot));
	size_t page_bytes = sysconf(_SC_PAGESIZE);
	struct io_uring_buf_reg row = { .ring_entries = BUFFERS, .bgid = GROUP };
	int err;

	if (!multishot)
		return -ENOMEM;
	err = open_ring(&multishot->ring);
	if (err) {
		free(multishot);
		return err;
	}
	thread->state = multishot;
	if (posix_memalign((void **)&multishot->buffers, page_bytes, page_bytes))
		err = -ENOMEM;
	row.ring_addr = (uintptr_t)multishot->buffers;
	if (!err) {
		io_uring_buf_ring_init(multishot->buffers);
		err = io_uring_register_buf_ring(&multishot->ring, &row, 0);
	}
	if (err) {
		close_multishot(thread);
		return err;
	}
	for (unsigned int i = 0; i < BUFFERS; i++)
		give_buffer_to_kernel(thread, i);
	return 0;
}

static void arm(struct receiver_thread *thread)
{
	struct multishot *multishot = thread->state;
	struct io_uring_sqe *sqe = io_uring_get_sqe(&multishot->ring);

	io_uring_prep_recv_multishot(sqe, thread->fd, NULL, 0, 0);
	sqe->flags |= IOSQE_BUFFER_SELECT;
	sqe->buf_group = GROUP;
	multishot->armed = true;
	count__add(&thread->counts.ring_requests, 1);
}

static int receive_multishot(struct receiver_thread *thread, struct arrival *arrival)
{
	struct multishot *multishot = thread->state;
	struct io_uring_cqe *cqe;
	unsigned int flags;
	int got;

	if (multishot->holds_buffer)
		give_buffer_to_kernel(thread, multishot->number);
	multishot->holds_buffer = false;
	if (!multishot->armed)
		arm(thread);
	if (io_uring_peek_cqe(&multishot->ring, &cqe)) {
		got = io_uring_submit_and_wait(&multishot->ring, 1);
		count__add(&thread->counts.ring_enters, 1);
		/* EBUSY: completions must be read first. */
		return got < 0 && got != -EBUSY ? got : -EAGAIN;
	}
	got = cqe->res;
	flags = cqe->flags;
	io_uring_cqe_seen(&multishot->ring, cqe);
	if (!(flags & IORING_CQE_F_MORE))
		multishot->armed = false;
	/* No buffer was free when the request ended. The contents of all buffers have been read since then. */
	if (got == -ENOBUFS)
		return -EAGAIN;
	if (got < 0)
		return got;
	arrival->bytes = got;
	if (flags & IORING_CQE_F_BUFFER) {
		multishot->holds_buffer = true;
		multishot->number = flags >> IORING_CQE_BUFFER_SHIFT;
		arrival->from = thread->to.buffer + multishot->number * thread->options->buffer_bytes;
	}
	return got > 0;
}

const struct reading reading_multishot = {
	.name = "multishot", .call = "io_uring receive", .in_ring = true, .buffers = BUFFERS,
	.needs = "io_uring of Linux 6.0 (sysctl kernel.io_uring_disabled=0, seccomp) and locked memory (ulimit -l)",
	.open = open_multishot, .receive = receive_multishot, .close = close_multishot,
};
