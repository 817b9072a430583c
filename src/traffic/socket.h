/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TRAFFIC_SOCKET_H
#define TRAFFIC_SOCKET_H

#include <stdbool.h>
#include <stdint.h>

#include "failure.h"

#define CONGESTION_NAME_BYTES 16	/* TCP_CA_NAME_MAX */

/* Smallest --sndbuf and --rcvbuf. With less than a page the TCP window opens for few bytes only, and a run takes minutes. */
#define SOCKET_BUFFER_MIN 4096

struct socket_options {
	const char *address;
	uint16_t port;
	bool nodelay;
	const char *congestion;			/* congestion control; NULL: cubic if allowed, else the host's default */
	char congestion_used[CONGESTION_NAME_BYTES];	/* congestion control of the first connection */
	int sndbuf_bytes;			/* sizes of the socket buffers; 0: the kernel's autotuning */
	int rcvbuf_bytes;
};

/*
 * The next four functions return a descriptor, or -errno with the reason in `failure`. Buffer sizes and congestion control are
 * set before the connection is made, because window scaling depends on them and accepted sockets inherit them.
 */
int socket__listen(const struct socket_options *options, unsigned int backlog,
		   struct failure *failure);
int socket__connect(const struct socket_options *options, struct failure *failure);
/* Create an unconnected socket, to check that the kernel accepts the options. */
int socket__probe(const struct socket_options *options, struct failure *failure);
/* Accept a connection of a listening socket. Return -EAGAIN if no connection waits. */
int socket__accept(int listener, struct failure *failure);

/* Write "address:port" of the local end of a socket. */
void socket__describe(int fd, char *text, size_t size);
uint16_t socket__port(int fd);
/* Return the current SO_SNDBUF or SO_RCVBUF; -1 if it is unknown. */
int socket__buffer_bytes(int fd, int option);
void socket__congestion(int fd, char name[CONGESTION_NAME_BYTES]);

/* Wait until the receiver's kernel has acknowledged all sent bytes. Return 0, or -errno with the reason in `failure`. */
int socket__drain(int fd, struct failure *failure);

#endif
