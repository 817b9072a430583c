// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <linux/sockios.h>
#include <netdb.h>
#include <netinet/in.h>
#include <linux/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include "clock.h"
#include "socket.h"

#define DEFAULT_CONGESTION "cubic"
#define CONNECT_TIMEOUT_S 10
/* Interval at which the send queue is polled, because the kernel sends no event when the last byte is acknowledged. */
#define DRAIN_POLL_NS 50000

static void read_line(const char *path, char *line, int size)
{
	FILE *file = fopen(path, "re");

	if (!file || !fgets(line, size, file))
		snprintf(line, size, "unknown");
	line[strcspn(line, "\n")] = '\0';
	if (file)
		fclose(file);
}

static int set_congestion(int fd, const struct socket_options *options, struct failure *failure)
{
	const char *name = options->congestion;
	char available[256];

	if (!name) {
		/* If cubic is missing or forbidden, the host's default stays in use. The report names the algorithm in use. */
		setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, DEFAULT_CONGESTION,
			   strlen(DEFAULT_CONGESTION));
		return 0;
	}
	if (!setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, strlen(name)))
		return 0;
	if (errno == EPERM) {
		read_line("/proc/sys/net/ipv4/tcp_allowed_congestion_control", available,
			  sizeof(available));
		return failure__set(failure, -EPERM, "--congestion %s: only root may use it on this machine; choose "
				    "one of %s", name, available);
	}
	read_line("/proc/sys/net/ipv4/tcp_available_congestion_control", available, sizeof(available));
	return failure__set(failure, -errno, "--congestion %s: not available in this kernel; choose one "
			    "of %s", name, available);
}

static int set_options(int fd, const struct socket_options *options, struct failure *failure)
{
	int nodelay = options->nodelay;

	if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &nodelay, sizeof(nodelay)) ||
	    (options->sndbuf_bytes && setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &options->sndbuf_bytes,
						 sizeof(options->sndbuf_bytes))) ||
	    (options->rcvbuf_bytes && setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &options->rcvbuf_bytes,
						 sizeof(options->rcvbuf_bytes))))
		return failure__set(failure, -errno, "cannot set the options of a TCP socket: %s", strerror(errno));
	return set_congestion(fd, options, failure);
}

/* Create a socket with all options, and resolve the address. Return the descriptor or -errno. */
static int open_socket(const struct socket_options *options, struct addrinfo **resolved,
		       struct failure *failure)
{
	struct addrinfo hints = {
		.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV,
	};
	char service[8];
	int err, fd;

	snprintf(service, sizeof(service), "%u", options->port);
	err = getaddrinfo(options->address, service, &hints, resolved);
	if (err)
		return failure__set(failure, -EINVAL, "address %s: %s; give an IPv4 or IPv6 address",
				    options->address, gai_strerror(err));
	fd = socket((*resolved)->ai_family, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
	if (fd < 0) {
		err = failure__set(failure, -errno, "cannot create a TCP socket: %s", strerror(errno));
		goto cleanup;
	}
	err = set_options(fd, options, failure);
	if (!err)
		return fd;
	close(fd);
cleanup:
	freeaddrinfo(*resolved);
	*resolved = NULL;
	return err;
}

int socket__probe(const struct socket_options *options, struct failure *failure)
{
	struct addrinfo *resolved = NULL;
	int fd = open_socket(options, &resolved, failure);

	if (resolved)
		freeaddrinfo(resolved);
	return fd;
}

int socket__listen(const struct socket_options *options, unsigned int backlog,
		   struct failure *failure)
{
	struct addrinfo *resolved = NULL;
	int fd = open_socket(options, &resolved, failure);
	int on = 1, err = 0;

	if (fd < 0)
		return fd;
	setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
	if (bind(fd, resolved->ai_addr, resolved->ai_addrlen) || listen(fd, backlog) ||
	    ioctl(fd, FIONBIO, &on)) {
		err = failure__set(failure, -errno, "cannot listen on %s:%u: %s; choose another --listen or "
				   "--port", options->address, options->port, strerror(errno));
		close(fd);
	}
	freeaddrinfo(resolved);
	return err ? err : fd;
}

int socket__connect(const struct socket_options *options, struct failure *failure)
{
	struct timeval limit = { .tv_sec = CONNECT_TIMEOUT_S }, none = { 0 };
	struct addrinfo *resolved = NULL;
	int fd = open_socket(options, &resolved, failure);
	int err = 0;

	if (fd < 0)
		return fd;
	/* The send timeout also limits connect(). The timeout is removed afterwards, because sends have no limit. */
	setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
	/*
	 * With a timeout the kernel does not restart connect() after a signal (signal(7)). SIGCONT interrupts connect(), and so does the
	 * cleanup of an io_uring that was tried before (io_ring_exit_work()). A second call waits for the same connection
	 * (__inet_stream_connect()).
	 */
	do
		err = connect(fd, resolved->ai_addr, resolved->ai_addrlen) ? -errno : 0;
	while (err == -EINTR);
	if (err) {
		err = err == -EINPROGRESS || err == -EALREADY ? -ETIMEDOUT : err;
		err = failure__set(failure, err, "cannot connect to %s:%u: %s; is `traffic send` listening there?",
				   options->address, options->port, strerror(-err));
		close(fd);
	} else {
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof(none));
	}
	freeaddrinfo(resolved);
	return err ? err : fd;
}

int socket__accept(int listener, struct failure *failure)
{
	int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);

	if (fd >= 0)
		return fd;
	/* ECONNABORTED: the connection was reset before it was accepted, so wait for the next connection. */
	if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED)
		return -EAGAIN;
	return failure__set(failure, -errno, "cannot accept a connection: %s", strerror(errno));
}

void socket__describe(int fd, char *text, size_t size)
{
	struct sockaddr_storage own;
	socklen_t length = sizeof(own);
	char host[64], port[8];

	if (getsockname(fd, (struct sockaddr *)&own, &length) ||
	    getnameinfo((struct sockaddr *)&own, length, host, sizeof(host), port, sizeof(port),
			NI_NUMERICHOST | NI_NUMERICSERV))
		snprintf(text, size, "unknown");
	else
		snprintf(text, size, strchr(host, ':') ? "[%s]:%s" : "%s:%s", host, port);
}

uint16_t socket__port(int fd)
{
	struct sockaddr_in6 own;	/* sockaddr_in has the port at the same offset */
	socklen_t length = sizeof(own);

	if (getsockname(fd, (struct sockaddr *)&own, &length))
		return 0;
	return ntohs(own.sin6_port);
}

int socket__buffer_bytes(int fd, int option)
{
	int bytes = -1;
	socklen_t length = sizeof(bytes);

	return getsockopt(fd, SOL_SOCKET, option, &bytes, &length) ? -1 : bytes;
}

void socket__congestion(int fd, char name[CONGESTION_NAME_BYTES])
{
	socklen_t length = CONGESTION_NAME_BYTES;

	if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name, &length))
		snprintf(name, CONGESTION_NAME_BYTES, "unknown");
	name[CONGESTION_NAME_BYTES - 1] = '\0';
}

int socket__drain(int fd, struct failure *failure)
{
	const struct timespec pause = { .tv_nsec = DRAIN_POLL_NS };

	for (;;) {
		struct pollfd broken = { .fd = fd, .events = 0 };
		int error = 0, queued;
		socklen_t length = sizeof(error);

		if (ioctl(fd, SIOCOUTQ, &queued))
			return failure__set(failure, -errno, "cannot read the send queue (SIOCOUTQ): %s", strerror(errno));
		if (!queued)
			return 0;
		/* Wait a moment. Without requested events, ppoll() returns early only for a broken connection. */
		if (ppoll(&broken, 1, &pause, NULL) <= 0)
			continue;
		getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &length);
		/* POLLERR alone means that the error queue has a notification of a zero-copy send. */
		if (!error && !(broken.revents & POLLHUP))
			continue;
		return failure__set(failure, error ? -error : -ECONNRESET,
				    "the connection broke with %d bytes not acknowledged: %s", queued,
				    strerror(error ? error : ECONNRESET));
	}
}
