/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TRAFFIC_TLS_H
#define TRAFFIC_TLS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "failure.h"
#include "message.h"

/* A property of a socket, not a strategy: the kernel encrypts what is sent (Documentation/networking/tls.rst). */
enum tls { TLS_OFF, TLS_12, TLS_13, TLS_CNT };

extern const char *const tls_names[TLS_CNT];

/* Plaintext of one record at most (RFC 8446, 5.1). */
#define TLS_RECORD_BYTES 16384u

/* Encrypt what this connection sends, or decrypt what it receives, with keys that both ends know and no handshake. */
int tls__start(int fd, enum tls version, bool sends, struct failure *failure);
/* Has this kernel kTLS? Asked on a socket that is not connected: 0 or -errno with the reason. */
int tls__check(int fd, struct failure *failure);

/* How many records a message becomes that is sent in one piece, or by fields that each close one. */
uint64_t tls__records(const struct message_shape *shape, bool by_field);

/* Connections that began in software and on a device, since the network namespace exists; -1: the kernel does not say. */
struct tls_begun {
	long software, device;
};

struct tls_begun tls__begun(bool sends);
/* Null without TLS, else what was set up since, and what a record has besides plaintext. */
json_t *tls__json(enum tls version, bool sends, const struct tls_begun *before);

#endif
