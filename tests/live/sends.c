// SPDX-License-Identifier: GPL-2.0-only
/*
 * sends.c - sends over lo in one way, or reads a file and sends a little, for some seconds, and reports exact counts with which
 * tests compare a ledger.
 *
 * sends HOW SECONDS REPORT
 *
 * It writes {"calls": ..., "messages": ..., "bytes": ...} to the file REPORT. Exit status 77: this kernel does not support HOW.
 * UDP data go to a socket that is never read; a thread reads TCP data.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

#include "checked.h"
#include "ring.h"

#define CANNOT 77
#define MEMORY_BYTES (1 << 21)
#define DATAGRAM_BYTES 1200
#define MESSAGES 8
#define URING_BYTES 16384
#define PIPE_BYTES 65536

static char *memory;
static int sock;
static struct sockaddr_in to;
static struct { long long calls, messages, bytes; } did;

static void count(long long messages, long long bytes)
{
	did.calls++;
	did.messages += messages;
	did.bytes += bytes;
}

/* Buffers aligned to a page, to a cache line, and to neither. */
static void do_writev(void)
{
	struct iovec buffers[] = { { memory, 4096 }, { memory + 8192 + 64, 1000 }, { memory + 16384 + 8, 100 } };

	count(1, checked(writev(sock, buffers, 3), "writev"));
}

/* Make small sends, so many that counting each of them slows the program. */
static void do_small(void)
{
	count(1, checked(send(sock, memory, 64, 0), "send"));
}

static void do_large(void)
{
	count(1, checked(send(sock, memory, 1 << 20, 0), "send"));
}

static void do_sendto(void)
{
	count(1, checked(sendto(sock, memory, DATAGRAM_BYTES, 0, (void *)&to, sizeof(to)), "sendto"));
}

/* Each message has two buffers, and starts at a different address. */
static void do_sendmmsg(void)
{
	struct iovec buffers[MESSAGES][2];
	struct mmsghdr messages[MESSAGES];
	long long sent, bytes = 0;

	memset(messages, 0, sizeof(messages));
	for (int i = 0; i < MESSAGES; i++) {
		buffers[i][0] = (struct iovec){ memory + i * 4096, DATAGRAM_BYTES / 2 };
		buffers[i][1] = (struct iovec){ memory + i * 4096 + 2048 + 1, DATAGRAM_BYTES / 2 };
		messages[i].msg_hdr = (struct msghdr){ .msg_iov = buffers[i], .msg_iovlen = 2, .msg_name = &to,
						       .msg_namelen = sizeof(to) };
	}
	sent = checked(sendmmsg(sock, messages, MESSAGES, 0), "sendmmsg");
	for (int i = 0; i < sent; i++)
		bytes += messages[i].msg_len;
	count(sent, bytes);
}

static void do_vmsplice(void)
{
	static int ends[2] = { -1, -1 };
	struct iovec page = { memory, PIPE_BYTES };
	long long in, moved;

	if (ends[0] < 0)
		checked(pipe(ends), "pipe");
	in = checked(vmsplice(ends[1], &page, 1, 0), "vmsplice");
	while (in > 0) {
		moved = checked(splice(ends[0], NULL, sock, NULL, in, 0), "splice");
		count(1, moved);
		in -= moved;
	}
}

static struct ended end_by_ring(int opcode, int flags, int fd)
{
	struct io_uring_sqe request = { .opcode = opcode, .fd = fd, .addr = (unsigned long)memory, .len = URING_BYTES,
					.ioprio = flags };
	struct ended result, ended;

	submit(&request);
	result = ended = next_completion();
	/* The buffer may be reused after the notification. */
	while (ended.flags & IORING_CQE_F_MORE)
		ended = next_completion();
	return result;
}

static void send_by_ring(int opcode, int flags)
{
	struct ended ended = end_by_ring(opcode, flags, sock);

	if (ended.res == -EINVAL || ended.res == -EOPNOTSUPP)
		exit(CANNOT);
	errno = -ended.res;
	count(1, checked(ended.res, "io_uring: send"));
}

static void do_uring(void)
{
	send_by_ring(IORING_OP_SEND, 0);
}

static void do_uring_zc(void)
{
	send_by_ring(IORING_OP_SEND_ZC, IORING_SEND_ZC_REPORT_USAGE);
}

/* Send without IORING_SEND_ZC_REPORT_USAGE, so that the notification does not report copies. */
static void do_uring_zc_quiet(void)
{
	send_by_ring(IORING_OP_SEND_ZC, 0);
}

/* After each send make a refused one, which gets a notification nevertheless; alternate between reporting copies and not. */
static void do_uring_zc_refused(void)
{
	static int ends[2] = { -1, -1 };
	static int flags;

	do_uring_zc();
	if (ends[0] < 0)
		checked(socketpair(AF_UNIX, SOCK_STREAM, 0, ends), "socketpair");
	flags ^= IORING_SEND_ZC_REPORT_USAGE;
	if (end_by_ring(IORING_OP_SEND_ZC, flags, ends[0]).res >= 0)
		errx(1, "io_uring: a UNIX socket took SEND_ZC");
}

/* Return a memfd to read. Send a byte for every 16 reads, because a program that sends nothing has no ledger. */
static int file_to_read(void)
{
	static long long reads;
	static int file = -1;

	if (reads++ % 16 == 0)
		checked(send(sock, memory, 1, 0), "send");
	if (file >= 0)
		return file;
	file = checked(memfd_create("file", 0), "memfd_create");
	checked(write(file, memory, URING_BYTES), "write");
	return file;
}

static void do_uring_read(void)
{
	struct ended ended = end_by_ring(IORING_OP_READ, 0, file_to_read());

	errno = -ended.res;
	count(1, checked(ended.res, "io_uring: read"));
}

static void do_aio_read(void)
{
	static aio_context_t context;
	struct iocb asked = { .aio_lio_opcode = IOCB_CMD_PREAD, .aio_fildes = file_to_read(), .aio_buf = (unsigned long)memory,
			      .aio_nbytes = URING_BYTES }, *all = &asked;
	struct io_event ended;

	if (!context && syscall(__NR_io_setup, 1, &context)) {
		warn("io_setup");
		exit(CANNOT);
	}
	checked(syscall(__NR_io_submit, context, 1, &all), "io_submit");
	checked(syscall(__NR_io_getevents, context, 1, 1, &ended, NULL), "io_getevents");
	errno = -ended.res;
	count(1, checked(ended.res, "AIO: read"));
}

static const struct {
	const char *name;
	int type;
	void (*once)(void);
} ways[] = {
	{ "writev", SOCK_STREAM, do_writev },
	{ "small", SOCK_STREAM, do_small },
	{ "large", SOCK_STREAM, do_large },
	{ "sendto", SOCK_DGRAM, do_sendto },
	{ "sendmmsg", SOCK_DGRAM, do_sendmmsg },
	{ "vmsplice", SOCK_STREAM, do_vmsplice },
	{ "uring", SOCK_STREAM, do_uring },
	{ "uring_zc", SOCK_STREAM, do_uring_zc },
	{ "uring_zc_quiet", SOCK_STREAM, do_uring_zc_quiet },
	{ "uring_zc_refused", SOCK_STREAM, do_uring_zc_refused },
	{ "uring_read", SOCK_STREAM, do_uring_read },
	{ "aio_read", SOCK_STREAM, do_aio_read },
};

static void *drain(void *arg)
{
	int peer = *(int *)arg;
	static char block[1 << 18];

	while (recv(peer, block, sizeof(block), 0) > 0)
		;
	return NULL;
}

static void open_sockets(int type)
{
	static int peer;
	socklen_t length = sizeof(to);
	pthread_t thread;
	int there = checked(socket(AF_INET, type, 0), "socket");

	to = (struct sockaddr_in){ .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	checked(bind(there, (void *)&to, sizeof(to)), "bind");
	checked(getsockname(there, (void *)&to, &length), "getsockname");
	sock = checked(socket(AF_INET, type, 0), "socket");
	if (type == SOCK_DGRAM)
		return;
	checked(listen(there, 1), "listen");
	checked(connect(sock, (void *)&to, sizeof(to)), "connect");
	peer = checked(accept(there, NULL, NULL), "accept");
	errno = pthread_create(&thread, NULL, drain, &peer);
	if (errno)
		err(1, "pthread_create");
}

int main(int argc, char **argv)
{
	double until;
	FILE *report;
	size_t way = 0;

	if (argc != 4)
		errx(2, "usage: sends HOW SECONDS REPORT");
	while (way < sizeof(ways) / sizeof(*ways) && strcmp(ways[way].name, argv[1]))
		way++;
	if (way == sizeof(ways) / sizeof(*ways))
		errx(2, "%s: no such way to send", argv[1]);
	memory = mmap(NULL, MEMORY_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (memory == MAP_FAILED)
		err(1, "mmap");
	memset(memory, 'c', MEMORY_BYTES);
	open_sockets(ways[way].type);
	until = now_s() + atof(argv[2]);
	while (now_s() < until)
		ways[way].once();
	report = fopen(argv[3], "w");
	if (!report)
		err(1, "%s", argv[3]);
	fprintf(report, "{\"calls\": %lld, \"messages\": %lld, \"bytes\": %lld}\n", did.calls, did.messages, did.bytes);
	return fclose(report) ? 1 : 0;
}
