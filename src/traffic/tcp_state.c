// SPDX-License-Identifier: GPL-2.0-only
#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>

#include "tcp_state.h"

/* JSON keys: the kernel's names without tcpi_, with the unit appended. */
static const struct {
	const char *name;
	unsigned int offset;
	unsigned int size;
} members[] = {
#define MEMBER(key, member) \
	{ key, offsetof(struct tcp_info, member), sizeof(((struct tcp_info *)0)->member) }
	MEMBER("state", tcpi_state),
	MEMBER("busy_time_us", tcpi_busy_time),
	MEMBER("rwnd_limited_us", tcpi_rwnd_limited),
	MEMBER("sndbuf_limited_us", tcpi_sndbuf_limited),
	MEMBER("rtt_us", tcpi_rtt),
	MEMBER("rttvar_us", tcpi_rttvar),
	MEMBER("min_rtt_us", tcpi_min_rtt),
	MEMBER("rto_us", tcpi_rto),
	MEMBER("snd_cwnd", tcpi_snd_cwnd),
	MEMBER("snd_mss_bytes", tcpi_snd_mss),
	MEMBER("rcv_mss_bytes", tcpi_rcv_mss),
	MEMBER("pmtu_bytes", tcpi_pmtu),
	MEMBER("snd_wnd_bytes", tcpi_snd_wnd),
	MEMBER("rcv_space_bytes", tcpi_rcv_space),
	MEMBER("total_retrans", tcpi_total_retrans),
	MEMBER("lost", tcpi_lost),
	MEMBER("reord_seen", tcpi_reord_seen),
	MEMBER("bytes_sent", tcpi_bytes_sent),
	MEMBER("bytes_retrans", tcpi_bytes_retrans),
	MEMBER("bytes_acked", tcpi_bytes_acked),
	MEMBER("bytes_received", tcpi_bytes_received),
	MEMBER("notsent_bytes", tcpi_notsent_bytes),
	MEMBER("segs_out", tcpi_segs_out),
	MEMBER("segs_in", tcpi_segs_in),
	MEMBER("data_segs_out", tcpi_data_segs_out),
	MEMBER("data_segs_in", tcpi_data_segs_in),
	MEMBER("delivered", tcpi_delivered),
	MEMBER("pacing_rate_bytes_per_s", tcpi_pacing_rate),
	MEMBER("delivery_rate_bytes_per_s", tcpi_delivery_rate),
#undef MEMBER
};

_Static_assert(sizeof(struct tcp_info) <= TCP_STATE_BYTES_MAX, "TCP_STATE_BYTES_MAX is too small for struct tcp_info");

void tcp_state__read(struct tcp_state *state, int fd)
{
	socklen_t length = sizeof(state->info);

	state->length = getsockopt(fd, IPPROTO_TCP, TCP_INFO, state->info, &length) ? 0 : length;
}

static int64_t read_member(const struct tcp_state *state, unsigned int offset, unsigned int size)
{
	uint64_t value = 0;
	uint32_t narrow;

	if (offset + size > state->length)
		return -1;
	if (size == sizeof(uint8_t))
		return state->info[offset];
	if (size == sizeof(uint32_t)) {
		memcpy(&narrow, state->info + offset, sizeof(narrow));
		return narrow;
	}
	memcpy(&value, state->info + offset, sizeof(value));
	/* The kernel reports "no limit" as ~0. */
	return value > INT64_MAX ? -1 : (int64_t)value;
}

int64_t tcp_state__peer_window_bytes(const struct tcp_state *state)
{
	return read_member(state, offsetof(struct tcp_info, tcpi_snd_wnd), sizeof(uint32_t));
}

json_t *tcp_state__json(const struct tcp_state *state)
{
	json_t *object;

	if (!state->length)
		return json_null();
	object = json_object();
	for (size_t i = 0; i < sizeof(members) / sizeof(*members); i++) {
		int64_t value = read_member(state, members[i].offset, members[i].size);

		json_object_set_new(object, members[i].name,
				    value < 0 ? json_null() : json_integer(value));
	}
	return object;
}
