// SPDX-License-Identifier: GPL-2.0
/*
 * timeline.c - clients on lo that say when each of their requests was answered, for make bench BENCH=within.
 *
 *	timeline ask PORT SECONDS FILE        one byte there and back (pingpong serve), one connection
 *	timeline http PORT SECONDS FILE       GET /file over 16 connections, each asks again when it has its answer
 *	timeline receive PORT SECONDS FILE    what a sender sends
 *
 * FILE gets 16 bytes for each request, or for each millisecond in which something was received: when it ended
 * (CLOCK_MONOTONIC, ns, u64), how long it took (ns, u32, at most 4 s) and the bytes received (u32).
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>

#define CONNECTIONS 16
#define MS_NS 1000000ULL

struct event {
	uint64_t ended_ns;
	uint32_t took_ns;
	uint32_t bytes;
};

static const char request[] = "GET /file HTTP/1.1\r\nHost: localhost\r\n\r\n";
static FILE *file;
static char buffer[1 << 18], unwritten[1 << 14];

static uint64_t now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ULL + now.tv_nsec;
}

static void note(uint64_t ended_ns, uint64_t took_ns, size_t bytes)
{
	struct event event = { ended_ns, took_ns < UINT32_MAX ? took_ns : UINT32_MAX, bytes };

	if (fwrite(&event, sizeof(event), 1, file) != 1)
		err(1, "write");
}

static int connect_to(int port)
{
	struct sockaddr_in address = { .sin_family = AF_INET, .sin_port = htons(port),
				       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)) ||
	    connect(fd, (struct sockaddr *)&address, sizeof(address)))
		err(1, "connect");
	return fd;
}

static size_t receive(int fd, size_t offset, size_t most)
{
	ssize_t got = recv(fd, buffer + offset, most, 0);

	if (got < 0)
		err(1, "recv");
	if (!got)
		errx(1, "the server has closed the connection");
	return got;
}

static void ask(int port, uint64_t until_ns)
{
	int fd = connect_to(port);
	uint64_t last_ns = now_ns();

	while (last_ns < until_ns) {
		uint64_t ended_ns;

		if (send(fd, buffer, 1, 0) != 1)
			err(1, "send");
		receive(fd, 0, 1);
		ended_ns = now_ns();
		note(ended_ns, ended_ns - last_ns, 1);
		last_ns = ended_ns;
	}
}

static void send_request(int fd)
{
	if (send(fd, request, sizeof(request) - 1, 0) != sizeof(request) - 1)
		err(1, "send");
}

/* Of one answer, with its header: all are alike. */
static size_t answer_bytes(int port)
{
	int fd = connect_to(port);
	size_t there = 0, header;
	char *end = NULL, *length;

	send_request(fd);
	while (!end) {
		there += receive(fd, there, sizeof(buffer) - 1 - there);
		buffer[there] = '\0';
		end = strstr(buffer, "\r\n\r\n");
		if (!end && there == sizeof(buffer) - 1)
			errx(1, "no answer of HTTP");
	}
	header = end + 4 - buffer;
	length = strcasestr(buffer, "content-length:");
	if (strncmp(buffer, "HTTP/1.1 200", 12) || !length || length > end)
		errx(1, "no answer of HTTP: %.40s", buffer);
	return header + strtoul(length + strlen("content-length:"), NULL, 10);
}

static void http(int port, uint64_t until_ns)
{
	size_t whole = answer_bytes(port), left[CONNECTIONS];
	int epoll = epoll_create1(EPOLL_CLOEXEC), fds[CONNECTIONS];
	struct epoll_event ready[CONNECTIONS];
	uint64_t asked_ns[CONNECTIONS];

	for (unsigned int i = 0; i < CONNECTIONS; i++) {
		struct epoll_event wanted = { .events = EPOLLIN, .data.u32 = i };

		fds[i] = connect_to(port);
		if (epoll_ctl(epoll, EPOLL_CTL_ADD, fds[i], &wanted))
			err(1, "epoll_ctl");
		left[i] = whole;
		asked_ns[i] = now_ns();
		send_request(fds[i]);
	}
	while (now_ns() < until_ns) {
		int found = epoll_wait(epoll, ready, CONNECTIONS, 1000);

		for (int n = 0; n < found; n++) {
			unsigned int i = ready[n].data.u32;
			uint64_t ended_ns;

			left[i] -= receive(fds[i], 0, left[i]);
			if (left[i])
				continue;
			ended_ns = now_ns();
			note(ended_ns, ended_ns - asked_ns[i], whole);
			left[i] = whole;
			asked_ns[i] = ended_ns;
			send_request(fds[i]);
		}
	}
}

static void receive_all(int port, uint64_t until_ns)
{
	int fd = connect_to(port);
	uint64_t ended_ns = 0, bin_ns = 0;
	size_t bytes = 0;

	while (ended_ns < until_ns) {
		size_t got = receive(fd, 0, sizeof(buffer));

		ended_ns = now_ns();
		if (bytes && ended_ns - bin_ns >= MS_NS) {
			note(bin_ns, 0, bytes);
			bytes = 0;
		}
		if (!bytes)
			bin_ns = ended_ns - ended_ns % MS_NS;
		bytes += got;
	}
}

int main(int argc, char **argv)
{
	uint64_t until_ns = now_ns();
	int port;

	if (argc != 5)
		errx(2, "usage: timeline ask|http|receive PORT SECONDS FILE");
	port = atoi(argv[2]);
	until_ns += atof(argv[3]) * 1e9;
	file = fopen(argv[4], "we");
	if (!file)
		err(1, "%s", argv[4]);
	/* Written as it grows, and of what is received it is read meanwhile: 64 ms at a time. */
	setvbuf(file, unwritten, _IOFBF, strcmp(argv[1], "receive") ? sizeof(unwritten) : 1 << 10);
	if (!strcmp(argv[1], "ask"))
		ask(port, until_ns);
	else if (!strcmp(argv[1], "http"))
		http(port, until_ns);
	else
		receive_all(port, until_ns);
	if (fclose(file))
		err(1, "%s", argv[4]);
	return 0;
}
