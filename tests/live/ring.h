/* SPDX-License-Identifier: GPL-2.0-only */
/* ring.h - minimal use of io_uring(7): one request at a time, without a library. */
#ifndef COPYSCOPE_TESTS_RING_H
#define COPYSCOPE_TESTS_RING_H

#include <err.h>
#include <linux/io_uring.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

static struct {
	int fd;
	_Atomic unsigned int *sq_tail, *cq_head, *cq_tail;
	unsigned int sq_mask, cq_mask, *sq_array;
	struct io_uring_sqe *sqes;
	struct io_uring_cqe *cqes;
} ring = { .fd = -1 };

static void open_ring(void)
{
	struct io_uring_params made = {};
	char *rings;

	ring.fd = syscall(__NR_io_uring_setup, 8, &made);
	if (ring.fd < 0 || !(made.features & IORING_FEAT_SINGLE_MMAP)) {
		warn("io_uring_setup");
		exit(77);
	}
	rings = mmap(NULL, made.cq_off.cqes + made.cq_entries * sizeof(*ring.cqes) + made.sq_off.array + 4096,
		     PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring.fd, IORING_OFF_SQ_RING);
	ring.sqes = mmap(NULL, made.sq_entries * sizeof(*ring.sqes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
			 ring.fd, IORING_OFF_SQES);
	if (rings == MAP_FAILED || ring.sqes == MAP_FAILED)
		err(1, "io_uring: mmap");
	ring.sq_tail = (void *)(rings + made.sq_off.tail);
	ring.sq_mask = *(unsigned int *)(rings + made.sq_off.ring_mask);
	ring.sq_array = (void *)(rings + made.sq_off.array);
	ring.cq_head = (void *)(rings + made.cq_off.head);
	ring.cq_tail = (void *)(rings + made.cq_off.tail);
	ring.cq_mask = *(unsigned int *)(rings + made.cq_off.ring_mask);
	ring.cqes = (void *)(rings + made.cq_off.cqes);
}

static void enter(unsigned int submitted)
{
	if (syscall(__NR_io_uring_enter, ring.fd, submitted, 1, IORING_ENTER_GETEVENTS, NULL, 0) < 0)
		err(1, "io_uring_enter");
}

struct ended {
	int res;
	unsigned int flags;
};

static struct ended next_completion(void)
{
	unsigned int head = atomic_load(ring.cq_head);
	struct ended ended;

	while (head == atomic_load(ring.cq_tail))
		enter(0);
	ended.res = ring.cqes[head & ring.cq_mask].res;
	ended.flags = ring.cqes[head & ring.cq_mask].flags;
	atomic_store(ring.cq_head, head + 1);
	return ended;
}

/* Submit a request, and wait for a completion of any request. */
static void submit(const struct io_uring_sqe *request)
{
	unsigned int tail, index;

	if (ring.fd < 0)
		open_ring();
	tail = atomic_load(ring.sq_tail);
	index = tail & ring.sq_mask;
	ring.sqes[index] = *request;
	ring.sq_array[index] = index;
	atomic_store(ring.sq_tail, tail + 1);
	enter(1);
}

#endif
