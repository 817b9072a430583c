/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TRAFFIC_TCP_STATE_H
#define TRAFFIC_TCP_STATE_H

#include <jansson.h>
#include <stdint.h>

#define TCP_STATE_BYTES_MAX 512

/* TCP_INFO of a connection as the kernel gave it; older kernels give less of it. */
struct tcp_state {
	unsigned char info[TCP_STATE_BYTES_MAX] __attribute__((aligned(8)));
	unsigned int length;	/* 0: unknown */
};

void tcp_state__read(struct tcp_state *state, int fd);
/* One member; -1 when the kernel did not give it. */
int64_t tcp_state__peer_window_bytes(const struct tcp_state *state);
/* All members of interest; null for those this kernel does not have. */
json_t *tcp_state__json(const struct tcp_state *state);

#endif
