// SPDX-License-Identifier: GPL-2.0-only
/*
 * crowd.c - makes a known number of calls, threads, processes or connections.
 *
 * crowd WHAT COUNT waits for a line on stdin, does WHAT, writes one line, and waits for the next line or the end of stdin.
 *
 *   again    like closed; then each of these threads receives 1 more byte from an open file. At the end the program writes a line
 *            with the total time of all its receives in ns, by its own clock
 *   closed   COUNT receives over lo, each in its own thread; another thread closes the file meanwhile. Every receive waits 2 ms and
 *            returns 1 byte, and its thread then sleeps until the end
 *   connections  COUNT connections to itself, open until the end. Each carries 100 bytes in one direction, twice. Between the two
 *            rounds the program writes a line and waits for one. Several processes share the connections.
 *   families  COUNT children, started before the first line. Each forks a grandchild; the program writes a line and waits for one;
 *            then each grandchild spends 3 ms of CPU time in getppid(2)
 *   joiners  COUNT children, forked 2 ms apart. Each spends 10 ms of CPU time in getppid(2) and stays until the end. The program is
 *            done when the last child has spent its time.
 *   pairs    like joiners, with threads of one process, each of which starts another thread
 *   processes  COUNT children, started before the first line. Each sends 100 bytes over lo; the last 100 children then
 *            spend 10 ms of CPU time in getppid(2)
 *   sleepers  COUNT children. Each spends 300 us of CPU time in getppid(2), sleeps for 8 ms, and repeats this until the end
 *   unread  COUNT connections, each filled until no more bytes fit, and closed. The other end reads nothing.
 *   threads  COUNT threads, one after the other. Each sends 1 byte over lo and ends.
 */
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define STACK_BYTES (64 << 10)

static int near, far;
static int go_ends[2], further_ends[2], told_ends[2], end_ends[2];
/* Pipe whose closing ends the children. */
static int release = -1;

static long checked(long done, const char *what)
{
	if (done < 0)
		err(1, "%s", what);
	return done;
}

static void rest_ms(long ms)
{
	struct timespec length = { ms / 1000, ms % 1000 * 1000000 };

	nanosleep(&length, NULL);
}

static void open_pipes(void)
{
	checked(pipe(go_ends), "pipe");
	checked(pipe(further_ends), "pipe");
	checked(pipe(told_ends), "pipe");
	checked(pipe(end_ends), "pipe");
	release = end_ends[1];
}

static void start(void *(*run)(void *), void *argument, pthread_t *thread)
{
	pthread_attr_t attr;

	pthread_attr_init(&attr);
	pthread_attr_setstacksize(&attr, STACK_BYTES);
	errno = pthread_create(thread, &attr, run, argument);
	if (errno)
		err(1, "pthread_create");
	pthread_attr_destroy(&attr);
}

static void connect_pair(void)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(to);
	int there = checked(socket(AF_INET, SOCK_STREAM, 0), "socket");

	checked(bind(there, (void *)&to, sizeof(to)), "bind");
	checked(getsockname(there, (void *)&to, &length), "getsockname");
	checked(listen(there, 1), "listen");
	near = checked(socket(AF_INET, SOCK_STREAM, 0), "socket");
	checked(connect(near, (void *)&to, sizeof(to)), "connect");
	far = checked(accept(there, NULL, NULL), "accept");
	close(there);
}

/* Wait until the thread sleeps in its receive call. */
static void await_sleep(_Atomic pid_t *tid)
{
	char path[64], line[128];

	while (!*tid)
		rest_ms(1);
	snprintf(path, sizeof(path), "/proc/self/task/%d/stat", *tid);
	for (;;) {
		FILE *stat = fopen(path, "r");

		if (!stat || !fgets(line, sizeof(line), stat))
			err(1, "%s", path);
		fclose(stat);
		if (strstr(line, ") S "))
			return;
		rest_ms(1);
	}
}

static _Atomic pid_t receiver;
static _Atomic long received, receive_ns;
/* Each thread makes one more receive call; this call may begin. */
static bool further;
static _Atomic bool released;

static long now_ns(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000000000L + now.tv_nsec;
}

static void receive_byte(int fd)
{
	long before_ns = now_ns();
	char byte;

	if (checked(recv(fd, &byte, 1, 0), "recv") != 1)
		errx(1, "recv: the end");
	receive_ns += now_ns() - before_ns;
	received++;
}

static void *receive_one(void *fd)
{
	receiver = syscall(SYS_gettid);
	receive_byte((int)(long)fd);
	while (further && !released)
		rest_ms(1);
	if (further)
		receive_byte(near);
	while (pause())
		;
	return NULL;
}

static void do_closed(long count)
{
	pthread_t thread;

	for (long i = 0; i < count; i++) {
		long fd = checked(dup(near), "dup");

		receiver = 0;
		start(receive_one, (void *)fd, &thread);
		await_sleep(&receiver);
		checked(close(fd), "close");
		rest_ms(2);
		checked(write(far, "x", 1), "write");
		while (received <= i)
			rest_ms(1);
	}
}

/* The second receives begin 0.1 s after the first ones, so that a mix-up of the two shows as a long time. */
static void do_again(long count)
{
	further = true;
	do_closed(count);
	rest_ms(100);
	for (long i = 0; i < count; i++)
		checked(write(far, "x", 1), "write");
	released = true;
	while (received < 2 * count)
		rest_ms(1);
	printf("%ld\n", (long)receive_ns);
}

static void *send_one(void *nothing)
{
	(void)nothing;
	checked(send(near, "x", 1, 0), "send");
	return NULL;
}

static void do_threads(long count)
{
	pthread_t thread;
	char byte;

	for (long i = 0; i < count; i++) {
		start(send_one, NULL, &thread);
		pthread_join(thread, NULL);
		checked(recv(far, &byte, 1, 0), "recv");
	}
}

/* Measure elapsed time, because reading the CPU clock of a process takes a system call. */
static void do_sleepers(long count)
{
	open_pipes();
	for (long i = 0; i < count; i++) {
		if (checked(fork(), "fork"))
			continue;
		close(end_ends[1]);
		for (struct pollfd end = { .fd = end_ends[0] }; !checked(poll(&end, 1, 8), "poll");)
			for (long since_ns = now_ns(); now_ns() - since_ns < 300000;)
				syscall(SYS_getppid);
		_exit(0);
	}
}

static void do_unread(long count)
{
	static const char block[1 << 16];

	for (long i = 0; i < count; i++) {
		connect_pair();
		while (send(near, block, sizeof(block), MSG_DONTWAIT) > 0)
			;
		if (errno != EAGAIN)
			err(1, "send");
		close(near);
	}
}

#define BUSY 100

static void spend_ms(clockid_t clock, long ms)
{
	struct timespec spent;

	do {
		for (int i = 0; i < 1000; i++)
			syscall(SYS_getppid);
		clock_gettime(clock, &spent);
	} while (!spent.tv_sec && spent.tv_nsec < ms * 1000000);
}

static void spend_10_ms(void)
{
	spend_ms(CLOCK_PROCESS_CPUTIME_ID, 10);
}

static void make_processes(long count)
{
	char block[100] = {};

	open_pipes();
	for (long i = 0; i < count; i++) {
		if (checked(fork(), "fork"))
			continue;
		close(go_ends[1]);
		close(end_ends[1]);
		if (checked(read(go_ends[0], block, 1), "read") == 1) {
			checked(send(near, block, sizeof(block), 0), "send");
			if (i >= count - BUSY)
				spend_10_ms();
			checked(write(told_ends[1], block, 1), "write");
		}
		checked(read(end_ends[0], block, 1), "read");
		_exit(0);
	}
}

static void do_processes(long count)
{
	char block[4096];

	for (long i = 0; i < count; i++)
		checked(write(go_ends[1], block, 1), "write");
	for (long left = 100 * count; left > 0;)
		left -= checked(recv(far, block, sizeof(block), 0), "recv");
	for (long i = 0; i < count; i++)
		checked(read(told_ends[0], block, 1), "read");
}

static void *be_second(void *nothing)
{
	char byte = 0;

	checked(write(told_ends[1], &byte, 1), "write");
	checked(read(further_ends[0], &byte, 1), "read");
	spend_ms(CLOCK_THREAD_CPUTIME_ID, 3);
	checked(write(told_ends[1], &byte, 1), "write");
	checked(read(end_ends[0], &byte, 1), "read");
	return nothing;
}

static void *be_first(void *in_threads)
{
	pthread_t thread;
	char byte;

	checked(read(go_ends[0], &byte, 1), "read");
	if (in_threads) {
		start(be_second, NULL, &thread);
	} else if (!checked(fork(), "fork")) {
		be_second(NULL);
		_exit(0);
	}
	checked(read(end_ends[0], &byte, 1), "read");
	return NULL;
}

static void make_families(long count)
{
	open_pipes();
	for (long i = 0; i < count; i++) {
		if (checked(fork(), "fork"))
			continue;
		close(end_ends[1]);
		be_first(NULL);
		_exit(0);
	}
}

static void make_pairs(long count)
{
	pthread_t thread;

	open_pipes();
	for (long i = 0; i < count; i++)
		start(be_first, &release, &thread);
}

static void let(int fd, long count)
{
	char byte = 0;

	for (long i = 0; i < count; i++)
		checked(write(fd, &byte, 1), "write");
	for (long i = 0; i < count; i++)
		checked(read(told_ends[0], &byte, 1), "read");
}

static void do_families(long count)
{
	let(go_ends[1], count);
	puts("done");
	fflush(stdout);
	getchar();
	let(further_ends[1], count);
}

static void do_joiners(long count)
{
	char byte = 0;

	open_pipes();
	for (long i = 0; i < count; i++) {
		rest_ms(2);
		if (checked(fork(), "fork"))
			continue;
		close(end_ends[1]);
		spend_10_ms();
		checked(write(told_ends[1], &byte, 1), "write");
		checked(read(end_ends[0], &byte, 1), "read");
		_exit(0);
	}
	for (long i = 0; i < count; i++)
		checked(read(told_ends[0], &byte, 1), "read");
}

/* By default, 28,000 ports are available for connections to an address, so use several addresses. */
static void connect_many(int *ends, long count)
{
	struct sockaddr_in to = { .sin_family = AF_INET };
	socklen_t length = sizeof(to);
	int there = checked(socket(AF_INET, SOCK_STREAM, 0), "socket");

	to.sin_addr.s_addr = htonl(INADDR_ANY);
	checked(bind(there, (void *)&to, sizeof(to)), "bind");
	checked(getsockname(there, (void *)&to, &length), "getsockname");
	checked(listen(there, 16), "listen");
	for (long i = 0; i < count; i++) {
		to.sin_addr.s_addr = htonl(INADDR_LOOPBACK + i / 10000);
		ends[2 * i] = checked(socket(AF_INET, SOCK_STREAM, 0), "socket");
		checked(connect(ends[2 * i], (void *)&to, sizeof(to)), "connect");
		ends[2 * i + 1] = checked(accept(there, NULL, NULL), "accept");
	}
}

/* Connections per process, limited by its open files: a connection has two. */
#define CONNECTIONS_EACH 8000

static void use_connections(long count, int told, int go)
{
	int *ends = calloc(2 * count, sizeof(*ends));
	struct rlimit files;
	char block[100] = {};

	checked(getrlimit(RLIMIT_NOFILE, &files), "getrlimit");
	files.rlim_cur = files.rlim_max;
	checked(setrlimit(RLIMIT_NOFILE, &files), "setrlimit");
	connect_many(ends, count);
	do {
		for (long i = 0; i < count; i++) {
			checked(send(ends[2 * i], block, sizeof(block), 0), "send");
			checked(recv(ends[2 * i + 1], block, sizeof(block), MSG_WAITALL), "recv");
		}
		checked(write(told, block, 1), "write");
	} while (checked(read(go, block, 1), "read"));
	exit(0);
}

static void do_connections(long count)
{
	long children = (count + CONNECTIONS_EACH - 1) / CONNECTIONS_EACH;
	int told[2], go[2];
	char byte = 0;

	checked(pipe(told), "pipe");
	checked(pipe(go), "pipe");
	for (long i = 0; i < children; i++) {
		long left = count - i * CONNECTIONS_EACH;

		if (checked(fork(), "fork"))
			continue;
		close(go[1]);
		use_connections(left < CONNECTIONS_EACH ? left : CONNECTIONS_EACH, told[1], go[0]);
	}
	close(told[1]);
	release = go[1];
	for (int round = 0; round < 2; round++) {
		for (long i = 0; i < children; i++)
			if (checked(read(told[0], &byte, 1), "read") != 1)
				errx(1, "a child has ended");
		if (round)
			return;
		puts("done");
		fflush(stdout);
		getchar();
		for (long i = 0; i < children; i++)
			checked(write(go[1], &byte, 1), "write");
	}
}

static const struct {
	const char *name;
	void (*run)(long count);
	/* Called before the first line is read. */
	void (*prepare)(long count);
} works[] = {
	{ "again", do_again, NULL },
	{ "closed", do_closed, NULL },
	{ "connections", do_connections, NULL },
	{ "families", do_families, make_families },
	{ "joiners", do_joiners, NULL },
	{ "pairs", do_families, make_pairs },
	{ "processes", do_processes, make_processes },
	{ "sleepers", do_sleepers, NULL },
	{ "threads", do_threads, NULL },
	{ "unread", do_unread, NULL },
};

int main(int argc, char **argv)
{
	if (argc != 3)
		errx(2, "usage: crowd WHAT COUNT");
	connect_pair();
	for (size_t i = 0; i < sizeof(works) / sizeof(*works); i++) {
		if (strcmp(works[i].name, argv[1]))
			continue;
		if (works[i].prepare)
			works[i].prepare(atol(argv[2]));
		if (getchar() == EOF)
			return 0;
		works[i].run(atol(argv[2]));
		puts("done");
		fflush(stdout);
		getchar();
		close(release);
		while (wait(NULL) > 0)
			;
		return 0;
	}
	errx(2, "%s: no such thing", argv[1]);
}
