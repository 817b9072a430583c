// SPDX-License-Identifier: GPL-2.0-only
/*
 * pipes.c - moves MESSAGES messages through pipes to TCP sockets of this process, and reports what became of each byte:
 * `pipes HOW MESSAGES REPORT`. Exit status 77: this kernel does not support the way.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "checked.h"
#include "ring.h"

#define MESSAGE_BYTES (1 << 15)
#define HEADER_BYTES 200
#define PIPE_BYTES (1 << 17)

struct link {
	int near, far;
	pthread_t thread;
};

struct channel {
	int out, in;
};

static char *memory;
static long long messages;
/* Bytes by the way in which they were moved; `read` were read from a pipe. */
static struct {
	long long copied, packets, memory, written, file, received, spliced, read;
} did;

static struct link link_up(void)
{
	struct sockaddr_in here = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(here);
	int there = checked(socket(AF_INET, SOCK_STREAM, 0), "socket");
	struct link link = {};

	checked(bind(there, (void *)&here, length), "bind");
	checked(getsockname(there, (void *)&here, &length), "getsockname");
	checked(listen(there, 1), "listen");
	link.near = checked(socket(AF_INET, SOCK_STREAM, 0), "socket");
	checked(connect(link.near, (void *)&here, length), "connect");
	link.far = checked(accept(there, NULL, NULL), "accept");
	close(there);
	return link;
}

static struct channel open_pipe(void)
{
	int ends[2];

	checked(pipe(ends), "pipe");
	checked(fcntl(ends[1], F_SETPIPE_SZ, PIPE_BYTES), "F_SETPIPE_SZ");
	return (struct channel){ .out = ends[0], .in = ends[1] };
}

static void start(struct link *link, void *(*run)(void *))
{
	errno = pthread_create(&link->thread, NULL, run, link);
	if (errno)
		err(1, "pthread_create");
}

/* Read the other end of a link until its stream ends. */
static void *drain(void *given)
{
	char *block = malloc(MESSAGE_BYTES);
	struct link *link = given;
	long long bytes;

	while ((bytes = checked(recv(link->far, block, MESSAGE_BYTES, 0), "recv")))
		__atomic_add_fetch(&did.received, bytes, __ATOMIC_RELAXED);
	free(block);
	return NULL;
}

static struct link sink(void)
{
	return link_up();
}

static void end(struct link *link)
{
	checked(shutdown(link->near, SHUT_WR), "shutdown");
	pthread_join(link->thread, NULL);
}

/* Send all messages by copy. */
static void *feed(void *given)
{
	struct link *link = given;

	for (long long i = 0; i < messages; i++)
		__atomic_add_fetch(&did.copied, checked(send(link->near, memory, MESSAGE_BYTES, 0), "send"), __ATOMIC_RELAXED);
	checked(shutdown(link->near, SHUT_WR), "shutdown");
	return NULL;
}

/* Move exactly so many bytes with splice(2). */
static void move(int from, int to, long long bytes, long long *sum)
{
	while (bytes) {
		long long moved = checked(splice(from, NULL, to, NULL, bytes, SPLICE_F_MOVE), "splice");

		if (!moved)
			errx(1, "splice: the end");
		bytes -= moved;
		if (sum)
			*sum += moved;
	}
}

static long long take(int from, const struct channel *channel)
{
	long long bytes = checked(splice(from, NULL, channel->in, NULL, MESSAGE_BYTES, SPLICE_F_MOVE), "splice from a socket");

	did.spliced += bytes;
	return bytes;
}

static long long duplicate(const struct channel *from, const struct channel *to, long long bytes)
{
	long long done = checked(tee(from->out, to->in, bytes, 0), "tee");

	if (done != bytes)
		errx(1, "tee: %lld of %lld bytes", done, bytes);
	return done;
}

/* Each received byte goes to two consumers. */
static void do_tee(void)
{
	struct channel first = open_pipe(), second = open_pipe();
	struct link source = link_up(), one = sink(), two = sink();
	long long bytes;

	start(&one, drain);
	start(&two, drain);
	start(&source, feed);
	while ((bytes = take(source.far, &first))) {
		duplicate(&first, &second, bytes);
		move(first.out, one.near, bytes, &did.packets);
		move(second.out, two.near, bytes, &did.packets);
	}
	pthread_join(source.thread, NULL);
	end(&one);
	end(&two);
}

/* A relay that looks at the bytes: a copy of each goes through a second pipe to read(2). */
static void do_tee_read(void)
{
	struct channel first = open_pipe(), second = open_pipe();
	struct link source = link_up(), one = sink();
	long long bytes;

	start(&one, drain);
	start(&source, feed);
	while ((bytes = take(source.far, &first))) {
		duplicate(&first, &second, bytes);
		move(first.out, one.near, bytes, &did.packets);
		for (long long left = bytes, got; left; left -= got) {
			got = checked(read(second.out, memory + MESSAGE_BYTES, left), "read");
			did.read += got;
		}
	}
	pthread_join(source.thread, NULL);
	end(&one);
}

/* Through two pipes, a header before each message. */
static void do_two_pipes(void)
{
	struct channel first = open_pipe(), second = open_pipe();
	struct link source = link_up(), one = sink();
	long long bytes;

	start(&one, drain);
	start(&source, feed);
	while ((bytes = take(source.far, &first))) {
		checked(write(second.in, memory, HEADER_BYTES), "write");
		move(first.out, second.in, bytes, NULL);
		move(second.out, one.near, HEADER_BYTES + bytes, NULL);
		did.written += HEADER_BYTES;
		did.packets += bytes;
	}
	pthread_join(source.thread, NULL);
	end(&one);
}

static int open_file(void)
{
	int file = checked(memfd_create("pipes", 0), "memfd_create");

	checked(write(file, memory, MESSAGE_BYTES), "write");
	return file;
}

/* File pages, memory and written bytes, to two consumers: sendfile(2) into a pipe, vmsplice(2), write(2). */
static void do_tee_mixed(void)
{
	struct channel first = open_pipe(), second = open_pipe();
	struct link one = sink(), two = sink();
	struct iovec lent = { .iov_base = memory, .iov_len = 2 * 4096 };
	int file = open_file();
	long long all = HEADER_BYTES + 2 * 4096 + MESSAGE_BYTES;

	start(&one, drain);
	start(&two, drain);
	for (long long i = 0; i < messages; i++) {
		off_t at = 0;

		checked(write(first.in, memory, HEADER_BYTES), "write");
		checked(vmsplice(first.in, &lent, 1, 0), "vmsplice");
		while (at < MESSAGE_BYTES)
			checked(sendfile(first.in, file, &at, MESSAGE_BYTES - at), "sendfile");
		duplicate(&first, &second, all);
		move(first.out, one.near, all, NULL);
		move(second.out, two.near, all, NULL);
		did.written += 2 * HEADER_BYTES;
		did.memory += 2 * 2 * 4096;
		did.file += 2 * MESSAGE_BYTES;
	}
	end(&one);
	end(&two);
}

/* Like do_tee(), by requests of io_uring. */
static int request(int opcode, int from, int to, unsigned int bytes)
{
	struct io_uring_sqe entry = {
		.opcode = opcode, .fd = to, .len = bytes, .splice_fd_in = from,
	};
	int result;

	if (opcode == IORING_OP_SPLICE)
		entry.off = entry.splice_off_in = -1;
	submit(&entry);
	result = next_completion().res;
	errno = -result;
	return checked(result < 0 ? -1 : result, "request");
}

static void do_uring_tee(void)
{
	struct channel first = open_pipe(), second = open_pipe();
	struct link source = link_up(), one = sink(), two = sink();
	int bytes;

	start(&one, drain);
	start(&two, drain);
	start(&source, feed);
	while ((bytes = request(IORING_OP_SPLICE, source.far, first.in, MESSAGE_BYTES))) {
		did.spliced += bytes;
		if (request(IORING_OP_TEE, first.out, second.in, bytes) != bytes)
			errx(1, "IORING_OP_TEE: too few bytes");
		for (int left = bytes, moved; left; left -= moved, did.packets += moved)
			moved = request(IORING_OP_SPLICE, first.out, one.near, left);
		for (int left = bytes, moved; left; left -= moved, did.packets += moved)
			moved = request(IORING_OP_SPLICE, second.out, two.near, left);
	}
	pthread_join(source.thread, NULL);
	end(&one);
	end(&two);
}

/* Each message is taken, passed on and copied by a thread of its own, which exits at once. */
static struct {
	struct channel channel;
	struct link from, to;
	long long bytes;
} turn;

static void *splice_once(void *unused)
{
	turn.bytes = take(turn.from.far, &turn.channel);
	if (turn.bytes)
		move(turn.channel.out, turn.to.near, turn.bytes, &did.packets);
	return unused;
}

static void *send_once(void *unused)
{
	did.copied += checked(send(turn.to.near, memory, HEADER_BYTES, 0), "send");
	return unused;
}

static void in_thread(void *(*run)(void *))
{
	pthread_t thread;

	errno = pthread_create(&thread, NULL, run, NULL);
	if (errno)
		err(1, "pthread_create");
	pthread_join(thread, NULL);
}

static void *feed_after(void *given)
{
	struct link *link = given;
	long long sum = 0;

	for (long long i = 0; i < messages; i++)
		sum += checked(send(link->near, memory, MESSAGE_BYTES, 0), "send");
	checked(shutdown(link->near, SHUT_WR), "shutdown");
	__atomic_add_fetch(&did.copied, sum, __ATOMIC_RELAXED);
	return NULL;
}

static void do_threads(void)
{
	long long small = 0;

	turn.channel = open_pipe();
	turn.from = link_up();
	turn.to = sink();
	start(&turn.to, drain);
	start(&turn.from, feed_after);
	do {
		in_thread(splice_once);
		if (small++ < messages)
			in_thread(send_once);
	} while (turn.bytes);
	pthread_join(turn.from.thread, NULL);
	end(&turn.to);
}

/* Bytes that a child process wrote into the pipe, after which it exited. */
static void do_child(void)
{
	struct channel channel = open_pipe();
	struct link one = sink();

	start(&one, drain);
	for (long long i = 0; i < messages; i++) {
		pid_t child = checked(fork(), "fork");

		if (!child) {
			struct iovec lent = { .iov_base = memory, .iov_len = 4096 };

			if (write(channel.in, memory, HEADER_BYTES) != HEADER_BYTES || vmsplice(channel.in, &lent, 1, 0) != 4096)
				_exit(1);
			_exit(0);
		}
		checked(waitpid(child, NULL, 0), "waitpid");
		move(channel.out, one.near, HEADER_BYTES + 4096, NULL);
		did.written += HEADER_BYTES;
		did.memory += 4096;
	}
	end(&one);
}

/* The bytes of a relay end in a pipe that is read by read(2), and are sent by a copy. */
static void do_read_out(void)
{
	struct channel channel = open_pipe();
	struct link source = link_up(), one = sink();
	long long bytes, got;

	start(&one, drain);
	start(&source, feed_after);
	while ((bytes = take(source.far, &channel)))
		for (; bytes; bytes -= got) {
			got = checked(read(channel.out, memory + MESSAGE_BYTES, bytes), "read");
			did.read += got;
			__atomic_add_fetch(&did.copied, checked(send(one.near, memory + MESSAGE_BYTES, got, 0), "send"), __ATOMIC_RELAXED);
		}
	pthread_join(source.thread, NULL);
	end(&one);
}

static const struct way ways[] = {
	{ "tee", do_tee },
	{ "tee_read", do_tee_read },
	{ "two_pipes", do_two_pipes },
	{ "tee_mixed", do_tee_mixed },
	{ "uring_tee", do_uring_tee },
	{ "threads", do_threads },
	{ "child", do_child },
	{ "read_out", do_read_out },
};

int main(int argc, char **argv)
{
	const struct way *way;
	FILE *report;

	if (argc != 4)
		errx(2, "usage: pipes HOW MESSAGES REPORT");
	way = find_way(ways, sizeof(ways) / sizeof(*ways), argv[1]);
	messages = atoll(argv[2]);
	memory = map_memory(2 * MESSAGE_BYTES);
	report = open_report(argv[3]);
	way->all();
	fprintf(report, "{\"copied\": %lld, \"packets\": %lld, \"memory\": %lld, \"written\": %lld, \"file\": %lld, "
		"\"received\": %lld, \"spliced\": %lld, \"read\": %lld}\n",
		did.copied, did.packets, did.memory, did.written, did.file, did.received, did.spliced, did.read);
	return fclose(report) ? 1 : 0;
}
