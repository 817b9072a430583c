/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TRAFFIC_TLS_H
#define TRAFFIC_TLS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "failure.h"
#include "message.h"

/* TLS version of a socket that the kernel encrypts (kTLS, Documentation/networking/tls.rst). Any plain strategy can use kTLS. */
enum tls { TLS_OFF, TLS_12, TLS_13, TLS_CNT };

extern const char *const tls_names[TLS_CNT];

/* Highest number of plaintext bytes in a record (RFC 8446, 5.1). */
#define TLS_RECORD_BYTES 16384u

/*
 * Make the kernel encrypt the sent data of a connection (`sends`), or decrypt the received data. The keys are fixed, without a
 * handshake.
 * Return 0, or -errno with the reason in `failure`.
 */
int tls__start(int fd, enum tls version, bool sends, struct failure *failure);
/* Check on an unconnected socket that the kernel has kTLS. Return 0, or -errno with the reason in `failure`. */
int tls__check(int fd, struct failure *failure);

/* Return the number of records of a message. `by_field` is set if each field is sent separately and closes a record. */
uint64_t tls__records(const struct message_shape *shape, bool by_field);

/* kTLS connections since the network namespace was created, encrypted in software and by a device; -1: unknown. */
struct tls_begun {
	long software, device;
};

struct tls_begun tls__begun(bool sends);
/* Return the TLS settings and the connections made since `before`; null without TLS. */
json_t *tls__json(enum tls version, bool sends, const struct tls_begun *before);

#endif
