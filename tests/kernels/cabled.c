// SPDX-License-Identifier: GPL-2.0-only
/*
 * cabled.c - sends to another host for some seconds, with or without one fault of a zero-copy sender, and reports its sends:
 * `cabled HOW SECONDS ADDRESS REPORT`. On the other host `cabled receive` serves one sender after the other.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "checked.h"

#define PORT 5199
#define NOBODY 65534
#define LARGE_BYTES (1 << 18)
#define SMALL_BYTES (1 << 10)
/* More buffers than a socket holds (net.ipv4.tcp_wmem), so that the sender waits for room, never for a free buffer. */
#define BUFFERS 64
/* Number of sends without a notification at which notifications are read. */
#define BATCH 8
/* Locked memory for three large buffers, rounded up to pages. */
#define MEMLOCK_BYTES (3 * (LARGE_BYTES + 4096) + 4096)

static char *memory;
static int peer;
static long long sends, refused, noticed, copied;

static void receive(void)
{
	struct sockaddr_in here = { .sin_family = AF_INET, .sin_port = htons(PORT) };
	int there = checked(socket(AF_INET, SOCK_STREAM, 0), "socket"), from;

	checked(setsockopt(there, SOL_SOCKET, SO_REUSEADDR, &(int){ 1 }, sizeof(int)), "SO_REUSEADDR");
	checked(bind(there, (void *)&here, sizeof(here)), "bind");
	checked(listen(there, 1), "listen");
	puts("ready");
	fflush(stdout);
	for (;;) {
		from = checked(accept(there, NULL, NULL), "accept");
		while (recv(from, memory, LARGE_BYTES, 0) > 0)
			;
		close(from);
	}
}

static bool read_notice(void)
{
	struct sock_extended_err *ended;
	char control[128];
	struct msghdr message = { .msg_control = control, .msg_controllen = sizeof(control) };
	unsigned int range;

	if (recvmsg(peer, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) {
		if (errno == EAGAIN)
			return false;
		err(1, "recvmsg");
	}
	ended = (void *)CMSG_DATA(CMSG_FIRSTHDR(&message));
	range = ended->ee_data - ended->ee_info + 1;
	noticed += range;
	if (ended->ee_code & SO_EE_CODE_ZEROCOPY_COPIED)
		copied += range;
	return true;
}

/* Wait until there is a notification, then read all. */
static void await_notice(void)
{
	checked(poll(&(struct pollfd){ .fd = peer }, 1, -1), "poll");
	while (read_notice())
		;
}

/* Send, and repeat refused sends at once. */
static void send_one(size_t bytes, int flags)
{
	while (send(peer, memory + sends % BUFFERS * LARGE_BYTES, bytes, flags) < 0) {
		if (errno != ENOBUFS)
			err(1, "send");
		refused++;
		while (read_notice())
			;
	}
	sends++;
}

static void send_in_batches(size_t bytes)
{
	send_one(bytes, MSG_ZEROCOPY);
	if (sends - noticed >= BATCH && sends % BATCH == 0)
		while (read_notice())
			;
}

static void plain(void)
{
	send_one(LARGE_BYTES, 0);
}

static void batches(void)
{
	send_in_batches(LARGE_BYTES);
}

static void small(void)
{
	send_in_batches(SMALL_BYTES);
}

static void wait_each(void)
{
	send_one(LARGE_BYTES, MSG_ZEROCOPY);
	while (noticed < sends)
		await_notice();
}

static void no_memlock(void)
{
	struct rlimit little = { .rlim_cur = MEMLOCK_BYTES, .rlim_max = MEMLOCK_BYTES };

	if (!sends) {
		checked(setrlimit(RLIMIT_MEMLOCK, &little), "setrlimit");
		checked(setresuid(NOBODY, NOBODY, NOBODY), "setresuid");
	}
	batches();
}

static const struct {
	const char *name;
	void (*once)(void);
} ways[] = {
	{ "plain", plain }, { "batches", batches }, { "small", small }, { "wait_each", wait_each }, { "no_memlock", no_memlock },
};

static void to(const char *address)
{
	struct sockaddr_in there = { .sin_family = AF_INET, .sin_port = htons(PORT) };

	if (inet_pton(AF_INET, address, &there.sin_addr) != 1)
		errx(2, "%s: no address", address);
	peer = checked(socket(AF_INET, SOCK_STREAM, 0), "socket");
	checked(setsockopt(peer, SOL_SOCKET, SO_ZEROCOPY, &(int){ 1 }, sizeof(int)), "SO_ZEROCOPY");
	checked(connect(peer, (void *)&there, sizeof(there)), "connect");
}

int main(int argc, char **argv)
{
	size_t way = 0;
	double until;
	FILE *report;

	memory = mmap(NULL, BUFFERS * LARGE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
	if (memory == MAP_FAILED)
		err(1, "mmap");
	if (argc == 2 && !strcmp(argv[1], "receive"))
		receive();
	if (argc != 5)
		errx(2, "usage: cabled HOW SECONDS ADDRESS REPORT, cabled receive");
	while (way < sizeof(ways) / sizeof(*ways) && strcmp(ways[way].name, argv[1]))
		way++;
	if (way == sizeof(ways) / sizeof(*ways))
		errx(2, "%s: no such way", argv[1]);
	/* Open the report first, because the test below may change the user of this process. */
	report = fopen(argv[4], "w");
	if (!report)
		err(1, "%s", argv[4]);
	to(argv[3]);
	until = now_s() + atof(argv[2]);
	while (now_s() < until)
		ways[way].once();
	while (way && noticed < sends)
		await_notice();
	fprintf(report, "{\"sends\": %lld, \"refused\": %lld, \"noticed\": %lld, \"copied\": %lld}\n", sends, refused, noticed, copied);
	return fclose(report) ? 1 : 0;
}
