// SPDX-License-Identifier: GPL-2.0-only
/*
 * pingpong.c - sends one byte back and forth over TCP on lo, for `make bench BENCH=watch`.
 *
 *	pingpong serve            print "listening on PORT" on stderr, and answer one client after the other
 *	pingpong ask PORT SECONDS print one line of JSON: requests, elapsed_ns, p99_ns
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

/* Histogram of round trips in steps of 100 ns. The last step includes everything longer than a second. */
#define SLOT_NS 100
#define SLOTS 10000000

static unsigned int taken[SLOTS];

static void die(const char *what)
{
	perror(what);
	exit(1);
}

static unsigned long long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000ULL + now.tv_nsec;
}

static int open_socket(struct sockaddr_in *address, int port)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1;

	if (fd < 0 || setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one)))
		die("socket");
	*address = (struct sockaddr_in){ .sin_family = AF_INET, .sin_port = htons(port),
					 .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	return fd;
}

static void serve(void)
{
	struct sockaddr_in address;
	socklen_t length = sizeof(address);
	int listener = open_socket(&address, 0);

	if (bind(listener, (struct sockaddr *)&address, length) || listen(listener, 1) ||
	    getsockname(listener, (struct sockaddr *)&address, &length))
		die("listen");
	fprintf(stderr, "listening on %d\n", ntohs(address.sin_port));
	for (;;) {
		int peer = accept(listener, NULL, NULL);
		char byte;

		if (peer < 0)
			die("accept");
		while (recv(peer, &byte, 1, 0) == 1)
			if (send(peer, &byte, 1, MSG_NOSIGNAL) != 1)
				break;
		close(peer);
	}
}

static void ask(int port, double seconds)
{
	unsigned long long began_ns, last_ns, until_ns, requests = 0, below = 0;
	struct sockaddr_in address;
	int fd = open_socket(&address, port);
	long slot = 0;
	char byte = 0;

	if (connect(fd, (struct sockaddr *)&address, sizeof(address)))
		die("connect");
	began_ns = last_ns = now_ns();
	until_ns = began_ns + seconds * 1e9;
	while (last_ns < until_ns) {
		unsigned long long ended_ns, slot_now;

		if (send(fd, &byte, 1, 0) != 1 || recv(fd, &byte, 1, 0) != 1)
			die("exchange");
		ended_ns = now_ns();
		slot_now = (ended_ns - last_ns) / SLOT_NS;
		taken[slot_now < SLOTS ? slot_now : SLOTS - 1]++;
		last_ns = ended_ns;
		requests++;
	}
	while (slot < SLOTS && (below += taken[slot]) < requests * 0.99)
		slot++;
	printf("{\"requests\": %llu, \"elapsed_ns\": %llu, \"p99_ns\": %ld}\n", requests, last_ns - began_ns,
	       (slot + 1) * SLOT_NS);
}

int main(int argc, char **argv)
{
	if (argc == 2 && !strcmp(argv[1], "serve"))
		serve();
	else if (argc == 4 && !strcmp(argv[1], "ask"))
		ask(atoi(argv[2]), atof(argv[3]));
	else
		fprintf(stderr, "usage: pingpong serve | pingpong ask PORT SECONDS\n");
	return argc != 4;
}
