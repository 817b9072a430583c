// SPDX-License-Identifier: GPL-2.0-only
/*
 * faults.c - zero-copy sender to port 7000 of ADDRESS, with one fault or without a fault: `faults HOW SECONDS REPORT ADDRESS`.
 *
 * Apart from the fault, it does everything right: large sends, many buffers, notifications read in batches without waiting.
 * Exit status 77: this kernel lacks the system call.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "checked.h"
#include "ring.h"

#define CANNOT 77
#define PORT 7000
#define SO_ZEROCOPY_NUMBER 60
#define MSG_ZEROCOPY_FLAG 0x4000000
#define NOBODY 65534
/* More buffers than a socket has in flight (tcp_wmem), so that the oldest buffer is always free. */
#define BUFFER_BYTES (1 << 16)
#define BUFFERS 128
#define BATCH 32
#define MEMLOCK_BYTES (4 * BUFFER_BYTES)
#define RETRY_NS 50000
#define PACE_NS 500000
#define RARE_NS 50000000
#define SMALL_BYTES 512
#define SMALL_BATCH 256
#define FIELD_BYTES 200
#define FIELDS_MOST 100

static char *memory;
static int sock;
static double until;
static struct { long long sends, bytes, refused, read; } did;

static bool more(void)
{
	return now_s() < until;
}

static void rest_ns(long ns)
{
	nanosleep(&(struct timespec){ .tv_nsec = ns }, NULL);
}

static char *buffer(void)
{
	return memory + did.sends % BUFFERS * BUFFER_BYTES;
}

static void sent(long long bytes)
{
	did.sends++;
	did.bytes += checked(bytes, "send");
}

/* Read a notification. Return false if there is none. */
static bool read_notice(void)
{
	struct sock_extended_err *ended;
	char control[128];
	struct msghdr message = { .msg_control = control, .msg_controllen = sizeof(control) };

	if (recvmsg(sock, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) {
		if (errno == EAGAIN)
			return false;
		err(1, "recvmsg");
	}
	ended = (void *)CMSG_DATA(CMSG_FIRSTHDR(&message));
	did.read += ended->ee_data - ended->ee_info + 1;
	return true;
}

static void read_notices(int batch)
{
	if (did.sends % batch == 0)
		while (read_notice())
			;
}

static void send_one(long long bytes)
{
	sent(send(sock, buffer(), bytes, MSG_ZEROCOPY_FLAG));
}

static void do_none(void)
{
	while (more()) {
		send_one(BUFFER_BYTES);
		read_notices(BATCH);
	}
}

/* Sleep by a timer after every send, for longer than a notification takes. */
static void do_paced(void)
{
	while (more()) {
		send_one(BUFFER_BYTES);
		rest_ns(PACE_NS);
		read_notices(2);
	}
}

/* Send so rarely that one or two sends are in flight. */
static void do_rare(void)
{
	while (more()) {
		send_one(BUFFER_BYTES);
		rest_ns(RARE_NS);
		while (read_notice())
			;
	}
}

static void do_never_read(void)
{
	while (more())
		send_one(BUFFER_BYTES);
}

/* Send. After a refusal, read all notifications and try again. */
static void send_until_taken(void)
{
	ssize_t bytes;

	while ((bytes = send(sock, buffer(), BUFFER_BYTES, MSG_ZEROCOPY_FLAG)) < 0 && errno == ENOBUFS) {
		did.refused++;
		rest_ns(RETRY_NS);
		while (read_notice())
			;
	}
	sent(bytes);
	read_notices(BATCH);
}

static void do_optmem(void)
{
	while (more())
		send_until_taken();
}

static void do_memlock(void)
{
	struct rlimit little = { .rlim_cur = MEMLOCK_BYTES, .rlim_max = MEMLOCK_BYTES };

	checked(setrlimit(RLIMIT_MEMLOCK, &little), "setrlimit");
	checked(setresuid(NOBODY, NOBODY, NOBODY), "setresuid");
	do_optmem();
}

static void do_small(void)
{
	while (more()) {
		send_one(SMALL_BYTES);
		read_notices(SMALL_BATCH);
	}
}

/* Send fields that are on different pages, like parts of different objects. */
static void send_fields(int count)
{
	static struct iovec fields[FIELDS_MOST];
	struct msghdr message = { .msg_iov = fields, .msg_iovlen = count };

	for (int i = 0; i < count; i++)
		fields[i] = (struct iovec){ memory + (did.sends % 2 * FIELDS_MOST + i) * 4096, FIELD_BYTES };
	sent(sendmsg(sock, &message, MSG_ZEROCOPY_FLAG));
	read_notices(BATCH);
}

static void do_fields(void)
{
	while (more())
		send_fields(FIELDS_MOST);
}

static void do_small_fields(void)
{
	while (more())
		send_fields(16);
}

static void do_header_body(void)
{
	char *header = memory + BUFFERS * BUFFER_BYTES;

	while (more()) {
		struct iovec parts[] = { { header, FIELD_BYTES }, { buffer(), BUFFER_BYTES } };
		struct msghdr message = { .msg_iov = parts, .msg_iovlen = 2 };

		sent(sendmsg(sock, &message, MSG_ZEROCOPY_FLAG));
		read_notices(BATCH);
	}
}

/* The same message without the fault: the header is sent separately. */
static void do_header_apart(void)
{
	char *header = memory + BUFFERS * BUFFER_BYTES;

	while (more()) {
		checked(send(sock, header, FIELD_BYTES, MSG_MORE), "send");
		send_one(BUFFER_BYTES);
		read_notices(BATCH);
	}
}

/* Wait for room in plain sends, and read the notifications that arrived meanwhile, without waiting for any. */
static void do_plain_between(void)
{
	while (more()) {
		send_one(BUFFER_BYTES);
		for (int i = 0; i < 16; i++)
			checked(send(sock, memory, BUFFERS * BUFFER_BYTES, 0), "send");
		while (read_notice())
			;
	}
}

/* Send by SEND_ZC. The notification may come after the return, like those of earlier sends. */
static void send_by_ring(int flags)
{
	struct io_uring_sqe request = { .opcode = IORING_OP_SEND_ZC, .fd = sock, .addr = (unsigned long)buffer(), .len = BUFFER_BYTES,
					.ioprio = flags, .msg_flags = MSG_WAITALL };
	struct ended ended;

	submit(&request);
	do {
		ended = next_completion();
	} while (ended.flags & IORING_CQE_F_NOTIF);
	if (ended.res == -EINVAL || ended.res == -EOPNOTSUPP)
		exit(CANNOT);
	errno = -ended.res;
	sent(ended.res);
}

static void do_unregistered(void)
{
	while (more())
		send_by_ring(IORING_SEND_ZC_REPORT_USAGE);
}

static void register_buffers(void)
{
	struct iovec all = { memory, BUFFERS * BUFFER_BYTES };

	open_ring();
	checked(syscall(__NR_io_uring_register, ring.fd, IORING_REGISTER_BUFFERS, &all, 1), "IORING_REGISTER_BUFFERS");
}

static void do_registered(void)
{
	register_buffers();
	while (more())
		send_by_ring(IORING_SEND_ZC_REPORT_USAGE | IORING_RECVSEND_FIXED_BUF);
}

static void do_ring_waits(void)
{
	register_buffers();
	while (more()) {
		send_by_ring(IORING_SEND_ZC_REPORT_USAGE | IORING_RECVSEND_FIXED_BUF);
		while (!(next_completion().flags & IORING_CQE_F_NOTIF))
			;
	}
}

static const struct way ways[] = {
	{ "none", do_none },
	{ "paced", do_paced },
	{ "rare", do_rare },
	{ "never_read", do_never_read },
	{ "optmem", do_optmem },
	{ "memlock", do_memlock },
	{ "small", do_small },
	{ "fields", do_fields },
	{ "small_fields", do_small_fields },
	{ "header_body", do_header_body },
	{ "header_apart", do_header_apart },
	{ "plain_between", do_plain_between },
	{ "unregistered", do_unregistered },
	{ "registered", do_registered },
	{ "ring_waits", do_ring_waits },
};

static void connect_to(const char *address)
{
	struct sockaddr_in peer = { .sin_family = AF_INET, .sin_port = htons(PORT), .sin_addr.s_addr = inet_addr(address) };
	int one = 1;

	sock = checked(socket(AF_INET, SOCK_STREAM, 0), "socket");
	if (setsockopt(sock, SOL_SOCKET, SO_ZEROCOPY_NUMBER, &one, sizeof(one)))
		exit(CANNOT);
	checked(setsockopt(sock, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)), "TCP_NODELAY");
	checked(connect(sock, (void *)&peer, sizeof(peer)), "connect");
}

int main(int argc, char **argv)
{
	const struct way *way;
	FILE *report;

	if (argc != 5)
		errx(2, "usage: faults HOW SECONDS REPORT ADDRESS");
	way = find_way(ways, sizeof(ways) / sizeof(*ways), argv[1]);
	memory = map_memory((BUFFERS + 1) * BUFFER_BYTES);
	/* Open the report first, because some faults change the user of this process. */
	report = open_report(argv[3]);
	connect_to(argv[4]);
	until = now_s() + atof(argv[2]);
	way->all();
	fprintf(report, "{\"sends\": %lld, \"bytes\": %lld, \"refused\": %lld, \"read\": %lld}\n", did.sends, did.bytes, did.refused,
		did.read);
	return fclose(report) ? 1 : 0;
}
