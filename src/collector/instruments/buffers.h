/* SPDX-License-Identifier: GPL-2.0-only */
/* buffers.h - life of the buffers that a watched program sent with MSG_ZEROCOPY (bpf/buffers.bpf.h). */
#ifndef COLLECTOR_BUFFERS_H
#define COLLECTOR_BUFFERS_H

#include <jansson.h>

struct copyscope;

/*
 * Return [{protocol, sends, given_back_sends, before_return, read_sends, closed_sends, enobufs, eagain, readings,
 * waits, waited_ns, flag_only_calls, most_in_flight, most_in_flight_bytes, latency, reading}] for the protocols with
 * zero-copy sends.
 */
json_t *buffers__json(const struct copyscope *skel);

#endif
