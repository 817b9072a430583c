// SPDX-License-Identifier: GPL-2.0-only
/*
 * moves.c - sends and receives MESSAGES messages in one way within this process, and reports how each byte was moved:
 * `moves HOW MESSAGES REPORT`, or `moves HOW SECONDSs REPORT`, such as 3s. Exit status 77: this kernel does not support the way.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <err.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/errqueue.h>
#include <netinet/in.h>
#include <poll.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

#include "checked.h"
#include "sockmap.h"

#define CANNOT 77
#define STREAM_BYTES (1 << 18)
#define DATAGRAM_BYTES 1200
#define ZEROCOPY_DATAGRAM_BYTES 16384
#define CHUNK_BYTES (1 << 20)
#define COPYBUF_BYTES (1 << 14)
#define IPPROTO_MPTCP_NUMBER 262
#define SO_ZEROCOPY_NUMBER 60
#define MSG_ZEROCOPY_FLAG 0x4000000
#define TCP_ZEROCOPY_RECEIVE_OPTION 35
#define NOBODY 65534

/* The struct of Linux 5.11. Older kernels fill in fewer bytes, and return their number. */
struct zerocopy_receive {
	unsigned long long address;
	unsigned int length, recv_skip_hint, inq;
	int err;
	unsigned long long copybuf_address;
	int copybuf_len;
	unsigned int flags;
};

static char *memory;
static int sender, receiver;
static long long messages;
static double began, until;
static struct {
	long long sends, sent, receives, received, mappings, mapped, copied, completions, flagged, refused, relayed, spliced;
	long long back_ns, unread_ns, waits, waited_ns;
} did;

static bool more(void)
{
	return until ? now_s() < until : did.sends < messages;
}

static void sent(long long bytes)
{
	did.sends++;
	did.sent += checked(bytes, "send");
}

static void received(long long bytes)
{
	did.receives++;
	did.received += checked(bytes, "recv");
}

static void unix_pair(int type)
{
	int ends[2];

	checked(socketpair(AF_UNIX, type, 0, ends), "socketpair");
	sender = ends[0];
	receiver = ends[1];
}

static void inet_pair(int type, int protocol)
{
	struct sockaddr_in here = { .sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
	socklen_t length = sizeof(here);
	int there = socket(AF_INET, type, protocol);

	if (there < 0)
		exit(CANNOT);
	checked(bind(there, (void *)&here, length), "bind");
	checked(getsockname(there, (void *)&here, &length), "getsockname");
	sender = checked(socket(AF_INET, type, protocol), "socket");
	if (type == SOCK_STREAM)
		checked(listen(there, 1), "listen");
	checked(connect(sender, (void *)&here, length), "connect");
	receiver = type == SOCK_STREAM ? checked(accept(there, NULL, NULL), "accept") : there;
}

/* Read each message before the next is sent, so that none is lost and no call waits. */
static void exchange(void)
{
	sent(send(sender, memory, DATAGRAM_BYTES, 0));
	received(recv(receiver, memory, DATAGRAM_BYTES, 0));
}

static void *drain(void *unused)
{
	long long bytes;

	(void)unused;
	while ((bytes = checked(recv(receiver, memory + STREAM_BYTES, STREAM_BYTES, 0), "recv")))
		received(bytes);
	return NULL;
}

static void stream(int flags)
{
	pthread_t thread;

	errno = pthread_create(&thread, NULL, drain, NULL);
	if (errno)
		err(1, "pthread_create");
	while (more())
		sent(send(sender, memory, STREAM_BYTES, flags));
	checked(shutdown(sender, SHUT_WR), "shutdown");
	pthread_join(thread, NULL);
}

static void do_unix_stream(void)
{
	unix_pair(SOCK_STREAM);
	stream(0);
}

static void do_unix_dgram(void)
{
	unix_pair(SOCK_DGRAM);
	while (more())
		exchange();
}

/* Peek at every second message and drop it, both with MSG_TRUNC, so without a copy. */
static void do_tcp_dropped(void)
{
	inet_pair(SOCK_STREAM, 0);
	while (more()) {
		bool drops = did.sends % 2;

		sent(send(sender, memory, DATAGRAM_BYTES, 0));
		if (drops)
			checked(recv(receiver, NULL, DATAGRAM_BYTES, MSG_PEEK | MSG_TRUNC), "recv");
		received(recv(receiver, memory, DATAGRAM_BYTES, drops ? MSG_TRUNC : 0));
		if (!drops)
			did.copied += DATAGRAM_BYTES;
	}
}

/* Each message ends with an urgent byte, which is received out of band. */
static void do_tcp_urgent(void)
{
	inet_pair(SOCK_STREAM, 0);
	while (more()) {
		sent(send(sender, memory, DATAGRAM_BYTES, MSG_OOB));
		/* Wait for the urgent byte: before it arrives, MSG_OOB fails with EINVAL. */
		checked(poll(&(struct pollfd){ .fd = receiver, .events = POLLPRI }, 1, -1), "poll");
		received(recv(receiver, memory, 1, MSG_OOB));
		received(recv(receiver, memory, DATAGRAM_BYTES - 1, MSG_WAITALL));
	}
}

/* Query the length of the next datagram before reading it, as systemd does. */
static void do_unix_length(void)
{
	unix_pair(SOCK_DGRAM);
	while (more()) {
		sent(send(sender, memory, DATAGRAM_BYTES, 0));
		checked(recv(receiver, NULL, 0, MSG_PEEK | MSG_TRUNC), "recv");
		received(recv(receiver, memory, DATAGRAM_BYTES, 0));
	}
}

static void do_udp(void)
{
	inet_pair(SOCK_DGRAM, 0);
	while (more())
		exchange();
}

/* Read only a part of each datagram. With MSG_TRUNC the call returns the full length. */
static void do_udp_length(void)
{
	inet_pair(SOCK_DGRAM, 0);
	while (more()) {
		sent(send(sender, memory, DATAGRAM_BYTES, 0));
		received(recv(receiver, memory, DATAGRAM_BYTES / 2, MSG_TRUNC));
	}
}

/* Request zero-copy, which MPTCP does not support. */
static void do_mptcp(void)
{
	int one = 1;

	inet_pair(SOCK_STREAM, IPPROTO_MPTCP_NUMBER);
	did.flagged = !setsockopt(sender, SOL_SOCKET, SO_ZEROCOPY_NUMBER, &one, sizeof(one));
	stream(MSG_ZEROCOPY_FLAG);
}

static void allow_zerocopy(void)
{
	int one = 1;

	if (setsockopt(sender, SOL_SOCKET, SO_ZEROCOPY_NUMBER, &one, sizeof(one)))
		exit(CANNOT);
}

/* Read notifications from the error queue, and count the sends that they report. */
static void reap(void)
{
	struct sock_extended_err *ended;
	struct cmsghdr *part;
	char control[128];

	for (;;) {
		struct msghdr message = { .msg_control = control, .msg_controllen = sizeof(control) };

		if (recvmsg(sender, &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) {
			if (errno == EAGAIN)
				return;
			err(1, "recvmsg");
		}
		part = CMSG_FIRSTHDR(&message);
		ended = (void *)CMSG_DATA(part);
		did.completions += ended->ee_data - ended->ee_info + 1;
	}
}

/* Three messages wait for a receiver that reads late, and their notifications for a sender that reads late. */
#define AT_ONCE 3
#define HELD_BYTES (1 << 16)
#define SMALL_WINDOW (1 << 15)
#define HELD_NS 10000000
#define UNREAD_NS 3000000

static void rest_ns(long ns)
{
	nanosleep(&(struct timespec){ .tv_nsec = ns }, NULL);
}

static void send_held(void)
{
	sent(send(sender, memory, HELD_BYTES, MSG_ZEROCOPY_FLAG));
}

/* Wait until all messages are complete. A notification may report one of them or several. */
static void await_notices(void)
{
	struct pollfd errors = { .fd = sender };

	received(recv(receiver, memory + HELD_BYTES, AT_ONCE * HELD_BYTES, MSG_WAITALL));
	checked(poll(&errors, 1, -1), "poll");
}

static void hold(double *back_s, double *unread_s)
{
	double returned_s, noticed_s;

	for (int i = 0; i < AT_ONCE; i++)
		send_held();
	returned_s = now_s();
	rest_ns(HELD_NS);
	await_notices();
	noticed_s = now_s();
	rest_ns(UNREAD_NS);
	*unread_s += now_s() - noticed_s;
	*back_s += noticed_s - returned_s;
	for (long long all = did.sends; did.completions < all;)
		reap();
}

/* At the end, some notifications are never read, and the last send is still in flight when its socket is closed. */
static void do_tcp_zerocopy(void)
{
	int little = SMALL_WINDOW;
	double back_s = 0, unread_s = 0;

	inet_pair(SOCK_STREAM, 0);
	allow_zerocopy();
	checked(setsockopt(receiver, SOL_SOCKET, SO_RCVBUF, &little, sizeof(little)), "SO_RCVBUF");
	while (more())
		hold(&back_s, &unread_s);
	did.back_ns = back_s * 1e9 * AT_ONCE / did.sends;
	did.unread_ns = unread_s * 1e9 * AT_ONCE / did.sends;
	for (int i = 0; i < AT_ONCE; i++)
		send_held();
	await_notices();
	send_held();
	checked(close(sender), "close");
	/* The close sends a reset, because there are unread bytes. */
	checked(close(receiver), "close");
}

/* The peer reads each message late, so notifications are late, too. */
#define READ_LATE_NS 2000000
#define REQUEST_BYTES 64

static void slow_pair(void)
{
	int little = SMALL_WINDOW;

	inet_pair(SOCK_STREAM, 0);
	allow_zerocopy();
	checked(setsockopt(receiver, SOL_SOCKET, SO_RCVBUF, &little, sizeof(little)), "SO_RCVBUF");
	checked(setsockopt(sender, SOL_SOCKET, SO_SNDBUF, &(int){ 4 * HELD_BYTES }, sizeof(int)), "SO_SNDBUF");
}

static void *read_late(void *unused)
{
	static char buffer[HELD_BYTES];

	(void)unused;
	while (checked(recv(receiver, buffer, sizeof(buffer), MSG_WAITALL), "recv"))
		rest_ns(READ_LATE_NS);
	return NULL;
}

static void to_a_late_reader(void (*send_one)(void))
{
	pthread_t thread;

	slow_pair();
	errno = pthread_create(&thread, NULL, read_late, NULL);
	if (errno)
		err(1, "pthread_create");
	while (more())
		send_one();
	checked(shutdown(sender, SHUT_WR), "shutdown");
	pthread_join(thread, NULL);
}

static void send_and_wait(void)
{
	long long before = did.completions;
	double slept_s;

	send_held();
	slept_s = now_s();
	while (did.completions == before) {
		checked(poll(&(struct pollfd){ .fd = sender }, 1, -1), "poll");
		did.waited_ns += (now_s() - slept_s) * 1e9;
		reap();
		slept_s = now_s();
	}
	did.waits++;
}

static void do_wait_each(void)
{
	to_a_late_reader(send_and_wait);
}

/* Wait for room in the send call, then read the notifications that have arrived. */
static void send_and_reap(void)
{
	send_held();
	reap();
}

static void do_wait_never(void)
{
	to_a_late_reader(send_and_reap);
}

/* Wait in poll() for room. A notification also ends the wait, because acknowledged bytes make room. */
static void send_where_there_is_room(void)
{
	for (;;) {
		ssize_t bytes = send(sender, memory, HELD_BYTES, MSG_ZEROCOPY_FLAG | MSG_DONTWAIT);

		if (bytes >= 0) {
			sent(bytes);
			return;
		}
		if (errno != EAGAIN)
			err(1, "send");
		checked(poll(&(struct pollfd){ .fd = sender, .events = POLLOUT }, 1, -1), "poll");
		reap();
	}
}

static void do_wait_for_room(void)
{
	to_a_late_reader(send_where_there_is_room);
}

/* Client: send a request, read the answer late, and sleep, so that the server reads its notification before the next request. */
static void *ask(void *unused)
{
	static char buffer[HELD_BYTES];

	(void)unused;
	for (long long i = 0; i < messages; i++) {
		checked(send(receiver, buffer, REQUEST_BYTES, 0), "send");
		rest_ns(READ_LATE_NS);
		checked(recv(receiver, buffer, sizeof(buffer), MSG_WAITALL), "recv");
		rest_ns(READ_LATE_NS);
	}
	return NULL;
}

static void do_idle_server(void)
{
	pthread_t thread;

	slow_pair();
	errno = pthread_create(&thread, NULL, ask, NULL);
	if (errno)
		err(1, "pthread_create");
	for (long long answers = 0; answers < messages;) {
		struct pollfd events = { .fd = sender, .events = POLLIN };

		checked(poll(&events, 1, -1), "poll");
		reap();
		if (!(events.revents & POLLIN))
			continue;
		received(checked(recv(sender, memory + HELD_BYTES, REQUEST_BYTES, MSG_WAITALL), "recv"));
		send_held();
		answers++;
	}
	pthread_join(thread, NULL);
}

/* Use MSG_ZEROCOPY without SO_ZEROCOPY, like a program that forgot the option. */
static void do_flag_alone(void)
{
	inet_pair(SOCK_STREAM, 0);
	stream(MSG_ZEROCOPY_FLAG);
}

static void do_udp_zerocopy(void)
{
	inet_pair(SOCK_DGRAM, 0);
	allow_zerocopy();
	while (more()) {
		sent(send(sender, memory, ZEROCOPY_DATAGRAM_BYTES, MSG_ZEROCOPY_FLAG));
		received(recv(receiver, memory + STREAM_BYTES, ZEROCOPY_DATAGRAM_BYTES, 0));
		reap();
	}
	while (did.completions < did.sends) {
		poll(&(struct pollfd){ .fd = sender }, 1, 100);
		reap();
	}
}

/* Send zero-copy: on lo the kernel copies these bytes into new pages (skb_copy_ubufs()), which the receiver can map. */
static void *send_to_be_mapped(void *unused)
{
	(void)unused;
	while (more()) {
		sent(send(sender, memory, STREAM_BYTES, MSG_ZEROCOPY_FLAG));
		reap();
	}
	checked(shutdown(sender, SHUT_WR), "shutdown");
	return NULL;
}

/* Receive by mapping. Bytes that cannot be mapped are copied by the same call or by recv(); which is not known beforehand. */
static void do_mapped(void)
{
	char *window, *copybuf = memory + STREAM_BYTES;
	pthread_t thread;

	inet_pair(SOCK_STREAM, 0);
	allow_zerocopy();
	window = mmap(NULL, CHUNK_BYTES, PROT_READ, MAP_SHARED, receiver, 0);
	if (window == MAP_FAILED)
		exit(CANNOT);
	errno = pthread_create(&thread, NULL, send_to_be_mapped, NULL);
	if (errno)
		err(1, "pthread_create");
	for (;;) {
		struct zerocopy_receive call = {
			.address = (unsigned long)window, .length = CHUNK_BYTES,
			.copybuf_address = (unsigned long)copybuf, .copybuf_len = COPYBUF_BYTES,
		};
		socklen_t length = sizeof(call);
		long long rest;

		checked(poll(&(struct pollfd){ .fd = receiver, .events = POLLIN }, 1, -1), "poll");
		if (getsockopt(receiver, IPPROTO_TCP, TCP_ZEROCOPY_RECEIVE_OPTION, &call, &length)) {
			if (errno == EIO)
				break;
			err(1, "getsockopt: TCP_ZEROCOPY_RECEIVE");
		}
		did.mappings++;
		did.mapped += call.length;
		if (length >= sizeof(call))
			did.copied += call.copybuf_len;
		if (!call.recv_skip_hint)
			continue;
		rest = call.recv_skip_hint < STREAM_BYTES ? call.recv_skip_hint : STREAM_BYTES;
		rest = checked(recv(receiver, copybuf, rest, 0), "recv");
		if (!rest)
			break;
		received(rest);
	}
	pthread_join(thread, NULL);
}

/* Redirect messages by a sockmap. Each message is received before the next is sent. */
static void do_sockmap(void)
{
	inet_pair(SOCK_STREAM, 0);
	if (redirect_messages(sender, receiver))
		exit(CANNOT);
	while (more()) {
		sent(send(sender, memory, DATAGRAM_BYTES, 0));
		received(recv(receiver, memory, DATAGRAM_BYTES, MSG_WAITALL));
	}
}

/* Fill the socket, which is never read, until the requested number of sends has been refused. */
static void do_refused(void)
{
	inet_pair(SOCK_STREAM, 0);
	for (;;) {
		ssize_t bytes = send(sender, memory, STREAM_BYTES, MSG_DONTWAIT);

		if (bytes >= 0) {
			sent(bytes);
			continue;
		}
		if (errno != EAGAIN)
			err(1, "send");
		/* A later send may succeed again, when bytes in flight have arrived. */
		if (++did.refused == messages)
			return;
	}
}

/* Lower the limit of locked memory below one message, so that each zero-copy send is refused and repeated as a copy. */
static void do_no_memlock(void)
{
	struct rlimit little = { .rlim_cur = 4096, .rlim_max = 4096 };

	inet_pair(SOCK_STREAM, 0);
	allow_zerocopy();
	checked(setrlimit(RLIMIT_MEMLOCK, &little), "setrlimit");
	checked(setresuid(NOBODY, NOBODY, NOBODY), "setresuid");
	while (more()) {
		if (send(sender, memory, ZEROCOPY_DATAGRAM_BYTES, MSG_ZEROCOPY_FLAG) >= 0 || errno != ENOBUFS) {
			/* In some containers the limit does not apply to this process. */
			warn("a zero-copy send was not refused");
			exit(did.refused ? 1 : CANNOT);
		}
		did.refused++;
		sent(send(sender, memory, ZEROCOPY_DATAGRAM_BYTES, 0));
		received(recv(receiver, memory, ZEROCOPY_DATAGRAM_BYTES, MSG_WAITALL));
	}
}

/* Relay between two connections of this process: it forwards half of the messages by recv() and send(), the others by splice(). */
static struct {
	int from, to;
} relay;

static bool in_first_half(void)
{
	return until ? now_s() < (began + until) / 2 : did.relayed < messages * STREAM_BYTES / 2;
}

static bool splice_on(const int pipe_ends[2])
{
	long long bytes = splice(relay.from, NULL, pipe_ends[1], NULL, STREAM_BYTES / 4, SPLICE_F_MOVE), left;

	did.spliced += checked(bytes, "splice");
	for (left = bytes; left;)
		left -= checked(splice(pipe_ends[0], NULL, relay.to, NULL, left, SPLICE_F_MOVE), "splice");
	return bytes;
}

static void *pass_on(void *unused)
{
	static char buffer[STREAM_BYTES / 4];
	int pipe_ends[2];
	long long bytes;

	(void)unused;
	checked(pipe(pipe_ends), "pipe");
	while (in_first_half()) {
		bytes = checked(recv(relay.from, buffer, sizeof(buffer), 0), "recv");
		if (send(relay.to, buffer, bytes, 0) != bytes)
			err(1, "send");
		did.relayed += bytes;
	}
	while (splice_on(pipe_ends))
		;
	checked(shutdown(relay.to, SHUT_WR), "shutdown");
	return NULL;
}

/* Start the relay between `sender` and `receiver`, and a new connection. Send through it. */
static void relay_stream(void)
{
	pthread_t thread;
	int source = sender;

	relay.from = receiver;
	inet_pair(SOCK_STREAM, 0);
	relay.to = sender;
	sender = source;
	errno = pthread_create(&thread, NULL, pass_on, NULL);
	if (errno)
		err(1, "pthread_create");
	stream(0);
	pthread_join(thread, NULL);
}

static void do_relay(void)
{
	inet_pair(SOCK_STREAM, 0);
	relay_stream();
}

/* The relay takes the bytes from a UNIX socket. */
static void do_relay_unix(void)
{
	unix_pair(SOCK_STREAM);
	relay_stream();
}

static const struct way ways[] = {
	{ "unix_stream", do_unix_stream },
	{ "unix_dgram", do_unix_dgram },
	{ "unix_length", do_unix_length },
	{ "tcp_dropped", do_tcp_dropped },
	{ "tcp_urgent", do_tcp_urgent },
	{ "udp", do_udp },
	{ "udp_length", do_udp_length },
	{ "udp_zerocopy", do_udp_zerocopy },
	{ "tcp_zerocopy", do_tcp_zerocopy },
	{ "wait_each", do_wait_each },
	{ "wait_never", do_wait_never },
	{ "wait_for_room", do_wait_for_room },
	{ "idle_server", do_idle_server },
	{ "flag_alone", do_flag_alone },
	{ "mptcp", do_mptcp },
	{ "mapped", do_mapped },
	{ "sockmap", do_sockmap },
	{ "refused", do_refused },
	{ "no_memlock", do_no_memlock },
	{ "relay", do_relay },
	{ "relay_unix", do_relay_unix },
};

int main(int argc, char **argv)
{
	const struct way *way;
	FILE *report;

	if (argc != 4)
		errx(2, "usage: moves HOW MESSAGES|SECONDSs REPORT");
	way = find_way(ways, sizeof(ways) / sizeof(*ways), argv[1]);
	began = now_s();
	if (strchr(argv[2], 's'))
		until = began + atof(argv[2]);
	else
		messages = atoll(argv[2]);
	memory = map_memory(2 * STREAM_BYTES);
	/* Open the report first, because some ways change the user of this process. */
	report = open_report(argv[3]);
	way->all();
	fprintf(report, "{\"sends\": %lld, \"sent\": %lld, \"receives\": %lld, \"received\": %lld, \"mappings\": %lld, "
		"\"mapped\": %lld, \"copied\": %lld, \"completions\": %lld, \"flagged\": %lld, "
		"\"refused\": %lld, \"relayed\": %lld, \"spliced\": %lld, "
		"\"back_ns\": %lld, \"unread_ns\": %lld, \"waits\": %lld, \"waited_ns\": %lld}\n",
		did.sends, did.sent, did.receives, did.received, did.mappings, did.mapped, did.copied, did.completions,
		did.flagged, did.refused, did.relayed, did.spliced, did.back_ns, did.unread_ns,
		did.waits, did.waited_ns);
	return fclose(report) ? 1 : 0;
}
