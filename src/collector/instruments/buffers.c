// SPDX-License-Identifier: GPL-2.0-only
#include "buffers.h"

#include <copyscope.skel.h>

#include "report/cells.h"
#include "report/maps.h"
#include "report/names.h"

static json_t *buffer_json(__u32 protocol, const struct copyscope *skel)
{
	const __u64 *flight = &skel->bss->zerocopy_flight[protocol * FLIGHT_CNT];
	struct buffer_cell sum = {};

	if (!maps__sum(skel->maps.buffer_cells, protocol, &sum, sizeof(sum)))
		return NULL;
	if (!sum.sends && !sum.enobufs && !sum.eagain && !sum.without_option && !sum.waits)
		return NULL;
	return json_pack("{s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}",
			 "protocol", protocol_names[protocol], "sends", (json_int_t)sum.sends,
			 "given_back_sends", (json_int_t)sum.given_back, "before_return", (json_int_t)sum.before_return,
			 "read_sends", (json_int_t)sum.read, "closed_sends", (json_int_t)sum.closed,
			 "enobufs", (json_int_t)sum.enobufs, "eagain", (json_int_t)sum.eagain,
			 "readings", (json_int_t)sum.readings, "waits", (json_int_t)sum.waits,
			 "waited_ns", (json_int_t)sum.waited_ns,
			 "flag_only_calls", (json_int_t)sum.without_option,
			 "most_in_flight", (json_int_t)flight[FLIGHT_MOST_BUFFERS],
			 "most_in_flight_bytes", (json_int_t)flight[FLIGHT_MOST_BYTES],
			 "latency", cells__histogram_json(sum.latency), "reading", cells__histogram_json(sum.reading));
}

json_t *buffers__json(const struct copyscope *skel)
{
	json_t *array = json_array();

	/* json_array_append_new() ignores NULL. */
	for (__u32 protocol = 0; protocol < PROTOCOL_CNT; protocol++)
		json_array_append_new(array, buffer_json(protocol, skel));
	return array;
}
