// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "receiver_thread.h"

/* struct tcp_zerocopy_receive of include/uapi/linux/tcp.h. The C library has an older struct of that name. */
#define OPTION_ZEROCOPY_RECEIVE 35
struct mapping_request {
	uint64_t address;
	uint32_t length;		/* in: maximum number of bytes to map; out: number of mapped bytes */
	uint32_t recv_skip_hint;	/* out: number of following bytes in the stream that cannot be mapped */
	uint32_t inq;
	int32_t err;			/* out: pending error of the socket, negative */
	uint64_t copybuf_address;
	int32_t copybuf_len;		/* in: size of the copy buffer; out: bytes copied (Linux 5.11 and newer) */
	uint32_t flags;
	uint64_t msg_control;
	uint64_t msg_controllen;
	uint32_t msg_flags;
	uint32_t reserved;
};

/* Timeout of poll(), because the end of a burst has fewer bytes than SO_RCVLOWAT and does not wake this thread. */
#define PATIENCE_MS 1

/* TCP_ZEROCOPY_RECEIVE maps whole pages of packets into an mmap() of the socket. Other bytes are copied. */
struct mapped {
	char *area;			/* mapping of the socket */
	size_t bytes;			/* size of the mapping */
	size_t page_bytes;
	uint32_t unmappable;		/* next bytes in the stream that must be copied by recv() */
	int patience_ms;		/* timeout of poll(); -1: none */
};

static void close_map(struct receiver_thread *thread)
{
	struct mapped *mapped = thread->state;

	munmap(mapped->area, mapped->bytes);
	free(mapped);
}

/*
 * Make the kernel wake this thread only when a whole mapping has arrived. With --mode rr, any byte wakes it, because the sender
 * waits for the answer to each message.
 */
static int set_wakeup_size(struct mapped *mapped, const struct receiver_thread *thread)
{
	int least = mapped->bytes;

	mapped->patience_ms = -1;
	if (thread->options->mode == MODE_RR)
		return 0;
	mapped->patience_ms = PATIENCE_MS;
	return setsockopt(thread->fd, SOL_SOCKET, SO_RCVLOWAT, &least, sizeof(least)) ? -errno : 0;
}

static int open_map(struct receiver_thread *thread)
{
	struct mapped *mapped = calloc(1, sizeof(*mapped));
	int err;

	if (!mapped)
		return -ENOMEM;
	mapped->page_bytes = sysconf(_SC_PAGESIZE);
	mapped->bytes = thread->options->buffer_bytes & ~(mapped->page_bytes - 1);
	mapped->area = mmap(NULL, mapped->bytes, PROT_READ, MAP_SHARED, thread->fd, 0);
	if (mapped->area == MAP_FAILED) {
		err = -errno;
		free(mapped);
		return err;
	}
	thread->state = mapped;
	err = set_wakeup_size(mapped, thread);
	if (err)
		close_map(thread);
	return err;
}

/* Receive with TCP_ZEROCOPY_RECEIVE. Kernels before 5.11 leave the bytes that they cannot map to the next recv(). */
static int take_mapped(struct receiver_thread *thread, struct arrival *arrival)
{
	struct mapped *mapped = thread->state;
	struct mapping_request request = {
		.address = (uintptr_t)mapped->area, .length = mapped->bytes,
		/*
		 * The copy buffer is smaller than a page, because the kernel copies whatever fits into it instead of
		 * mapping it.
		 */
		.copybuf_address = (uintptr_t)thread->to.buffer, .copybuf_len = mapped->page_bytes - 1,
	};
	socklen_t length = sizeof(request);

	if (getsockopt(thread->fd, IPPROTO_TCP, OPTION_ZEROCOPY_RECEIVE, &request, &length))
		return errno == EIO ? -ENODATA : -errno;	/* EIO: end of the stream, which recv() will report, too */
	mapped->unmappable = request.recv_skip_hint;
	if (length < offsetof(struct mapping_request, flags) || request.copybuf_len < 0)
		request.copybuf_len = 0;
	if (!request.length && !request.copybuf_len)
		return -ENODATA;
	if (mapped->unmappable)
		mapped->unmappable -= request.copybuf_len;
	*arrival = (struct arrival){
		.way = WAY_MAPPED, .mapped = mapped->area, .mapped_bytes = request.length,
		.from = thread->to.buffer, .bytes = request.copybuf_len,
	};
	return 1;
}

static int take_copied(struct receiver_thread *thread, struct arrival *arrival)
{
	struct mapped *mapped = thread->state;
	size_t size = thread->options->buffer_bytes;

	if (mapped->unmappable && mapped->unmappable < size)
		size = mapped->unmappable;
	mapped->unmappable = 0;
	return arrival__of_call(arrival, thread->to.buffer, recv(thread->fd, thread->to.buffer, size, MSG_DONTWAIT));
}

static int receive_map(struct receiver_thread *thread, struct arrival *arrival)
{
	struct mapped *mapped = thread->state;
	struct pollfd ready = { .fd = thread->fd, .events = POLLIN };
	int took;

	if (mapped->unmappable)
		return take_copied(thread, arrival);
	poll(&ready, 1, mapped->patience_ms);
	took = take_mapped(thread, arrival);
	return took == -ENODATA ? take_copied(thread, arrival) : took;
}

const struct reading reading_map = {
	.name = "map", .call = "TCP_ZEROCOPY_RECEIVE", .way = WAY_MAPPED, .whole_pages = true,
	.needs = "TCP_ZEROCOPY_RECEIVE of Linux 4.18 or newer",
	.open = open_map, .receive = receive_map, .close = close_map,
};
