/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TRAFFIC_SOCKET_H
#define TRAFFIC_SOCKET_H

#include <stdbool.h>
#include <stdint.h>

#include "failure.h"

#define CONGESTION_NAME_BYTES 16	/* TCP_CA_NAME_MAX */

/* With less than a page a window opens for a few bytes now and then: what is in flight takes minutes to arrive. */
#define SOCKET_BUFFER_MIN 4096

struct socket_options {
	const char *address;
	uint16_t port;
	bool nodelay;
	char congestion[CONGESTION_NAME_BYTES];	/* empty: cubic where it may be used, else the host's */
	char congestion_used[CONGESTION_NAME_BYTES];	/* what the first connection got */
	int sndbuf_bytes;			/* 0: leave it to the kernel */
	int rcvbuf_bytes;
};

/*
 * All return a descriptor or -errno with the reason. Buffer sizes and congestion control are set
 * before the connection exists: window scaling depends on it, and accepted sockets inherit them.
 */
int socket__listen(const struct socket_options *options, unsigned int backlog,
		   struct failure *failure);
int socket__connect(const struct socket_options *options, struct failure *failure);
/* A TCP socket with these options that is not connected: does the kernel accept them? */
int socket__probe(const struct socket_options *options, struct failure *failure);
/* A connection of a listening socket; -EAGAIN when there is none yet. */
int socket__accept(int listener, struct failure *failure);

/* "address:port" of the own end. */
void socket__describe(int fd, char *text, size_t size);
uint16_t socket__port(int fd);
/* SO_SNDBUF or SO_RCVBUF as the kernel accounts it now; -1 unknown. */
int socket__buffer_bytes(int fd, int option);
void socket__congestion(int fd, char name[CONGESTION_NAME_BYTES]);

/* Wait until the peer's kernel has acknowledged all that was sent. */
int socket__drain(int fd, struct failure *failure);

#endif
