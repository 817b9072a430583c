// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include "receiver_thread.h"

/* include/uapi/linux/tcp.h; the C library's header has an older one of the same name. */
#define OPTION_ZEROCOPY_RECEIVE 35
struct mapping_request {
	uint64_t address;
	uint32_t length;		/* to map at most; mapped */
	uint32_t recv_skip_hint;	/* what comes next cannot be mapped: so many bytes */
	uint32_t inq;
	int32_t err;			/* of the socket, negative */
	uint64_t copybuf_address;
	int32_t copybuf_len;		/* room; copied (5.11 and newer) */
	uint32_t flags;
	uint64_t msg_control;
	uint64_t msg_controllen;
	uint32_t msg_flags;
	uint32_t reserved;
};

/* Fewer bytes than SO_RCVLOWAT wake nobody: so long they may wait at the end of a burst. */
#define PATIENCE_MS 1

/* TCP_ZEROCOPY_RECEIVE: whole pages of packets into our memory, which lies over the socket; the rest is copied. */
struct mapped {
	char *area;
	size_t bytes;
	size_t page_bytes;
	uint32_t unmappable;
	int patience_ms;
};

static void close_map(struct receiver_thread *thread)
{
	struct mapped *mapped = thread->state;

	munmap(mapped->area, mapped->bytes);
	free(mapped);
}

/* The kernel is to wake us when it is worth while: not for less than can be mapped at once, unless each message is waited for. */
static int set_worth(struct mapped *mapped, const struct receiver_thread *thread)
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
	err = set_worth(mapped, thread);
	if (err)
		close_map(thread);
	return err;
}

/* What a kernel before 5.11 does not copy, the next recv() gets. */
static int take_mapped(struct receiver_thread *thread, struct arrival *arrival)
{
	struct mapped *mapped = thread->state;
	struct mapping_request request = {
		.address = (uintptr_t)mapped->area, .length = mapped->bytes,
		/* Less than a page only: all that fits in here is copied and not mapped. */
		.copybuf_address = (uintptr_t)thread->to.buffer, .copybuf_len = mapped->page_bytes - 1,
	};
	socklen_t length = sizeof(request);

	if (getsockopt(thread->fd, IPPROTO_TCP, OPTION_ZEROCOPY_RECEIVE, &request, &length))
		return errno == EIO ? -ENODATA : -errno;	/* EIO: the stream is over, which recv() says as well */
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
