// SPDX-License-Identifier: GPL-2.0-only
#include "watch.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <copyscope.skel.h>

#include "buffers.h"
#include "programs.h"
#include "kernel/ksyms.h"
#include "report/maps.h"
#include "report/names.h"
#include "report/watched.h"
#include "stored_sockets.h"

bool watch__keeps(const char *instrument)
{
	return !strcmp(instrument, "watch") || !strcmp(instrument, "volume");
}

void watch__configure(const struct watch *watch, struct copyscope *skel)
{
	unsigned int sockets = watch ? watch->sockets_max : 1;

	bpf_map__set_max_entries(skel->maps.socket_cells, sockets);
	bpf_map__set_max_entries(skel->maps.zerocopy_sockets, sockets);
	bpf_map__set_max_entries(skel->maps.flows, sockets);
	bpf_map__set_max_entries(skel->maps.zerocopy_buffers, watch ? BUFFERS_MAX : 1);
	programs__configure(watch, skel);
	if (!watch)
		return;
	skel->rodata->watch_mode = watch->mode;
	skel->rodata->watch_cgroup_id = watch->cgroup_id;
	skel->rodata->watch_cgroup_level = watch->cgroup_level;
	skel->rodata->watch_netns = watch->netns;
	skel->rodata->watch_follow = watch->follow;
	skel->rodata->watch_master = getppid();
	skel->rodata->io_submit_number = __NR_io_submit;
	memcpy((void *)skel->rodata->task_offsets, watch->task_offsets, sizeof(watch->task_offsets));
	memcpy((char *)skel->rodata->watch_comm, watch->comm, sizeof(watch->comm));
}

int watch__never(const struct bpf_map *watched)
{
	__u32 own_tgids[] = { getpid(), getppid() }, by = WATCHED_NEVER;
	int err = 0;

	for (int i = 0; i < 2 && !err; i++)
		err = bpf_map_update_elem(bpf_map__fd(watched), &own_tgids[i], &by, BPF_ANY);
	return err;
}

void watch__add(struct copyscope *skel, pid_t tgid)
{
	__u32 key = tgid, by = WATCHED_ITSELF;

	if (bpf_map_update_elem(bpf_map__fd(skel->maps.watched), &key, &by, BPF_ANY))
		__sync_fetch_and_add(&skel->bss->lost[LOSS_WATCHED_MAP_FULL], 1);
	__sync_fetch_and_add(&skel->bss->watched_changes, 1);
}

/* Return [[low, count]] for the slots of sizes with a nonzero count. Each slot covers a power of two. */
static json_t *sizes_json(const __u64 *sizes)
{
	json_t *array = json_array();

	for (int slot = 0; slot < SIZE_SLOTS; slot++)
		if (sizes[slot])
			json_array_append_new(array, json_pack("[I, I]", slot ? 1LL << slot : 0LL,
							       (json_int_t)sizes[slot]));
	return array;
}

void watch__learn(struct copyscope *skel, const struct ksyms *ksyms)
{
	uint64_t address = 0, end;

	if (!skel->bss)
		return;
	if (ksyms__range(ksyms, "user_page_pipe_buf_try_steal", &address, &end))
		skel->bss->memory_page_steal = address;
	if (ksyms__range(ksyms, "anon_pipe_buf_try_steal", &address, &end))
		skel->bss->written_page_steal = address;
	if (ksyms__range(ksyms, "generic_pipe_buf_release", &address, &end))
		skel->bss->packet_page_release = address;
	if (ksyms__range(ksyms, "sock_map_close", &address, &end))
		skel->bss->sockmap_close = address;
}

static json_t *volume_json(__u32 index, const struct copyscope *skel)
{
	struct volume_cell sum = {};

	if (!skel->bss->volume_used[index] ||
	    !maps__sum_and_largest(skel->maps.volume_cells, index, &sum, sizeof(sum), &sum.largest_bytes) || !sum.calls)
		return NULL;
	return json_pack("{s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o}",
			 "protocol", protocol_names[index / CALL_CNT / DIRECTION_CNT],
			 "direction", direction_names[index / CALL_CNT % DIRECTION_CNT],
			 "syscall", call_names[index % CALL_CNT],
			 "calls", (json_int_t)sum.calls, "bytes", (json_int_t)sum.bytes,
			 "zerocopy_calls", (json_int_t)sum.zerocopy_calls,
			 "zerocopy_bytes", (json_int_t)sum.zerocopy_bytes,
			 "nodelay_calls", (json_int_t)sum.nodelay_calls, "cork_calls", (json_int_t)sum.cork_calls,
			 "copied_calls", (json_int_t)sum.copied_calls, "copied_bytes", (json_int_t)sum.copied_bytes,
			 "ring_calls", (json_int_t)sum.ring_calls, "ring_bytes", (json_int_t)sum.ring_bytes,
			 "largest_bytes", (json_int_t)sum.largest_bytes, "sizes", sizes_json(sum.sizes));
}

/* Return a row like those of volume_json(), of which only calls and bytes are known, or NULL without calls. */
static json_t *plain_row(const char *protocol, const char *direction, const char *call, __u64 calls, __u64 bytes)
{
	if (!calls)
		return NULL;
	return json_pack("{s:s, s:s, s:s, s:I, s:I, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:[]}",
			 "protocol", protocol, "direction", direction, "syscall", call,
			 "calls", (json_int_t)calls, "bytes", (json_int_t)bytes,
			 "zerocopy_calls", 0, "zerocopy_bytes", 0, "nodelay_calls", 0, "cork_calls", 0,
			 "copied_calls", 0, "copied_bytes", 0, "ring_calls", 0, "ring_bytes", 0,
			 "largest_bytes", 0, "sizes");
}

static json_t *file_reads_json(enum file_reads kind, enum file_call call, const struct copyscope *skel)
{
	static const char *const kinds[FILE_READS_CNT] = { "file_read", "direct_read", "unseen_read" };
	static const char *const calls[FILE_CALL_CNT] = { "read", "readv", "io_uring", "io_submit" };
	const __u32 at = FILE_READS_AT(kind, call);

	return plain_row("file", kinds[kind], calls[call], skel->bss->file_read_calls[at], skel->bss->file_read_bytes[at]);
}

static json_t *volumes_json(const struct copyscope *skel)
{
	json_t *array = json_array();

	/* json_array_append_new() ignores NULL. */
	for (__u32 index = 0; index < VOLUME_CELLS; index++)
		json_array_append_new(array, volume_json(index, skel));
	for (enum file_reads kind = 0; kind < FILE_READS_CNT; kind++)
		for (enum file_call call = 0; call < FILE_CALL_CNT; call++)
			json_array_append_new(array, file_reads_json(kind, call, skel));
	json_array_append_new(array, plain_row("pipe", "teed", "tee", skel->bss->teed_calls, skel->bss->teed_bytes));
	return array;
}

/*
 * Return [[low, count]] for the slots with a nonzero count. Values up to 15 have a slot each; above, slots are powers
 * of two.
 */
static json_t *counts_json(const __u64 *slots)
{
	json_t *array = json_array();

	for (int slot = 0; slot < COUNT_SLOTS; slot++) {
		json_int_t low = slot < COUNTS_EXACT ? slot : (json_int_t)COUNTS_EXACT << (slot - COUNTS_EXACT);

		if (slots[slot])
			json_array_append_new(array, json_pack("[I, I]", low, (json_int_t)slots[slot]));
	}
	return array;
}

static json_t *shape_json(__u32 index, const struct copyscope *skel)
{
	struct shape_cell sum = {};

	if (!skel->bss->shape_used[index] || !maps__sum(skel->maps.shape_cells, index, &sum, sizeof(sum)) || (!sum.messages && !sum.sends))
		return NULL;
	return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:o, s:o}",
			 "protocol", protocol_names[index / CALL_CNT], "syscall", call_names[index % CALL_CNT],
			 "messages", (json_int_t)sum.messages, "unreadable", (json_int_t)sum.unreadable,
			 "repeated", (json_int_t)sum.repeated, "buffers", (json_int_t)sum.buffers,
			 "looked", (json_int_t)sum.looked, "page_aligned", (json_int_t)sum.page_aligned,
			 "line_aligned", (json_int_t)sum.line_aligned, "mixed", (json_int_t)sum.mixed,
			 "sends", (json_int_t)sum.sends, "rounds", (json_int_t)sum.rounds,
			 "buffers_per_message", counts_json(sum.buffers_per_message),
			 "rounds_per_send", counts_json(sum.rounds_per_send));
}

/* Return the buffers of the program's sends, from the calls made while the instrument was attached. */
static json_t *shapes_json(const struct copyscope *skel)
{
	json_t *array = json_array();

	for (__u32 index = 0; index < SHAPE_CELLS; index++)
		json_array_append_new(array, shape_json(index, skel));
	return array;
}

/* Return the numbers of failed send calls, by call and errno. */
static json_t *send_errors_json(const struct copyscope *skel)
{
	json_t *array = json_array();

	for (int index = 0; index < CALL_SLOTS * ERRNO_SLOTS; index++)
		if (skel->bss->send_errors[index])
			json_array_append_new(array, json_pack("{s:s, s:i, s:I}", "syscall", call_names[index / ERRNO_SLOTS],
							       "errno", index % ERRNO_SLOTS,
							       "calls", (json_int_t)skel->bss->send_errors[index]));
	return array;
}

static void add_relay(void *context, const void *tid, const void *value)
{
	const struct passed *passed = value;
	__u64 *totals = context;

	(void)tid;
	if (!RELAYS(passed->received_bytes, passed->sent_bytes))
		return;
	totals[RELAY_THREADS]++;
	totals[RELAY_RECEIVED] += passed->received_bytes;
	totals[RELAY_SENT] += passed->sent_bytes;
}

/* Return the number of threads that received and sent similar amounts by timed calls, and their bytes. */
static json_t *relays_json(const struct copyscope *skel)
{
	__u64 totals[RELAY_CNT];

	for (int total = 0; total < RELAY_CNT; total++)
		totals[total] = skel->bss->relayed[total];
	maps__each(bpf_map__fd(skel->maps.passed_on), sizeof(__u32), sizeof(struct passed), add_relay, totals);
	return json_pack("{s:I, s:I, s:I}", "threads", (json_int_t)totals[RELAY_THREADS],
			 "received_bytes", (json_int_t)totals[RELAY_RECEIVED], "sent_bytes", (json_int_t)totals[RELAY_SENT]);
}

static json_t *packets_json(const struct copyscope *skel)
{
	struct packet_cell sum = {};

	maps__sum(skel->maps.packet_cells, 0, &sum, sizeof(sum));
	return json_pack("{s:I, s:I, s:I, s:o}", "packets", (json_int_t)sum.packets, "bytes", (json_int_t)sum.bytes,
			 "segments", (json_int_t)sum.segments, "sizes", sizes_json(sum.sizes));
}

static json_t *processes_json(struct watched *watched)
{
	json_t *array = json_array();

	watched__update(watched);
	for (size_t i = 0; i < watched->count; i++)
		json_array_append_new(array, json_pack("[i, b]", watched->processes[i].pid,
						       watched->processes[i].by == WATCHED_BY_FORK));
	return array;
}

json_t *watch__json(const struct copyscope *skel, struct watched *watched)
{
	json_t *totals = json_object();

	for (int total = 0; total < WATCH_TOTAL_CNT; total++)
		json_object_set_new(totals, watch_total_names[total],
				    json_integer(skel->bss->watch_totals[total]));
	return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:I}", "volume", volumes_json(skel), "packets", packets_json(skel),
			 "shapes", shapes_json(skel), "send_errors", send_errors_json(skel), "buffers", buffers__json(skel), "relays", relays_json(skel),
			 "processes", processes_json(watched), "totals", totals, "page_bytes", (json_int_t)skel->rodata->page_bytes);
}

/* TCP's own count is meaningless for a socket in a sockmap, which has no inode. */
static void set_socket(json_t *sockets, __u64 inode, json_int_t sent_bytes, json_int_t received_bytes)
{
	char name[24];

	snprintf(name, sizeof(name), "%llu", (unsigned long long)inode);
	if (inode)
		json_object_set_new(sockets, name, json_pack("[I, I]", sent_bytes, received_bytes));
}

static void set_stored(void *sockets, const struct socket_cell *cell)
{
	set_socket(sockets, cell->inode, cell->sent_bytes, cell->received_bytes);
}

/* Add the bytes that were counted by file descriptor to those that are stored at the same socket. */
static void add_socket(void *sockets, const void *key, const void *value)
{
	const struct socket_cell *cell = value;
	json_int_t sent_bytes = 0, received_bytes = 0;
	char name[24];

	(void)key;
	snprintf(name, sizeof(name), "%llu", (unsigned long long)cell->inode);
	json_unpack(json_object_get(sockets, name), "[I, I]", &sent_bytes, &received_bytes);
	set_socket(sockets, cell->inode, sent_bytes + cell->sent_bytes, received_bytes + cell->received_bytes);
}

json_t *watch__sockets_json(const struct copyscope *skel, const struct bpf_link *list)
{
	json_t *sockets = json_object();

	stored_sockets__each(list, set_stored, sockets);
	maps__each(bpf_map__fd(skel->maps.socket_cells), sizeof(__u64), sizeof(struct socket_cell), add_socket, sockets);
	return sockets;
}

json_t *watch__peers_json(const struct copyscope *skel)
{
	int fd = bpf_map__fd(skel->maps.peers);
	struct peer key, *previous = NULL;
	char address[INET6_ADDRSTRLEN];
	json_t *array = json_array();

	while (!bpf_map_get_next_key(fd, previous, &key)) {
		previous = &key;
		if (inet_ntop(key.family, key.address, address, sizeof(address)))
			json_array_append_new(array, json_pack("{s:I, s:s, s:s%}", "netns", (json_int_t)key.netns,
							       "address", address, "device", key.device,
							       strnlen(key.device, sizeof(key.device))));
	}
	return array;
}
