/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TRAFFIC_TCP_STATE_H
#define TRAFFIC_TCP_STATE_H

#include <jansson.h>
#include <stdint.h>

#define TCP_STATE_BYTES_MAX 512

/* TCP_INFO of a connection as the kernel returned it. Older kernels return fewer members. */
struct tcp_state {
	unsigned char info[TCP_STATE_BYTES_MAX] __attribute__((aligned(8)));
	unsigned int length;	/* bytes that the kernel returned; 0: TCP_INFO failed */
};

void tcp_state__read(struct tcp_state *state, int fd);
/* Return the receive window of the other end (tcpi_snd_wnd), or -1 if the kernel did not return it. */
int64_t tcp_state__peer_window_bytes(const struct tcp_state *state);
/* Return a selection of members as JSON: null for each member that this kernel does not have. */
json_t *tcp_state__json(const struct tcp_state *state);

#endif
