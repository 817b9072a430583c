// SPDX-License-Identifier: GPL-2.0
#include "options.h"
#include "report_set.h"

static json_t *count_or_null(uint64_t count)
{
	return count ? json_integer((json_int_t)count) : json_null();
}

static json_t *cpus_json(const struct placement *placement)
{
	json_t *cpus = json_array();

	for (unsigned int i = 0; i < placement->count; i++)
		json_array_append_new(cpus, json_integer(placement->cpus[i]));
	return cpus;
}

/* Which of the kernel's ways are taken beside plain copies: its other functions need no hook (collector --moves). */
static json_t *moves_json(const struct options *o)
{
	bool sends = o->role == ROLE_SEND;
	const struct {
		const char *name;
		bool taken;
	} moves[] = {
		{ "zerocopy", sends && strategy__lends_memory(o->strategy) },
		{ "pages", sends && strategy__gives_pages(o->strategy) },
		{ "tls", o->tls },
		{ "map", !sends && o->reading->way == WAY_MAPPED },
	};
	json_t *array = json_array();

	for (size_t i = 0; i < sizeof(moves) / sizeof(*moves); i++)
		if (moves[i].taken)
			json_array_append_new(array, json_string(moves[i].name));
	return array;
}

static void add_send_options(json_t *object, const struct options *o)
{
	json_object_set_new(object, "impl", json_string(o->strategy->name));
	json_object_set_new(object, "duration_s", o->duration_s ? json_real(o->duration_s) : json_null());
	json_object_set_new(object, "messages", count_or_null(o->messages));
	json_object_set_new(object, "header_bytes", count_or_null(o->shape.header_bytes));
	json_object_set_new(object, "align", json_string(alignment_names[o->shape.align]));
	json_object_set_new(object, "pages", json_string(page_kind_names[o->shape.pages]));
	json_object_set_new(object, "file", o->shape.directory ? json_string(o->shape.directory)
							       : json_null());
	json_object_set_new(object, "sndbuf_bytes", count_or_null(o->socket.sndbuf_bytes));
	json_object_set_new(object, "sender", json_string(sending_names[o->sending]));
	json_object_set_new(object, "issue", o->strategy->in_ring ? json_string(issue_names[o->issue]) : json_null());
	json_object_set_new(object, "push", json_string(push_names[o->push]));
	json_object_set_new(object, "call", json_string(vectored_names[o->call]));
	json_object_set_new(object, "via", json_string(via_names[o->via]));
	report__set(object, "batch_sends", o->batch);
	json_object_set_new(object, "wait", json_string(notices_names[o->wait]));
	json_object_set_new(object, "registered", json_boolean(o->shape.in_arena && o->strategy->registers));
	json_object_set_new(object, "relays", json_boolean(o->strategy->relays));
	/* A call may pass the socket several times, or in another than the four calls that a hook there knows (bpf/calls.bpf.c). */
	json_object_set_new(object, "in_pieces",
			    json_boolean(strategy__gives_pages(o->strategy) || o->strategy->in_ring ||
					 o->call != VECTORED_SENDMSG || o->batch > 1));
	report__set(object, "time_every", o->time_every);
	report__set(object, "seed", o->seed);
}

static void add_recv_options(json_t *object, const struct options *o)
{
	json_object_set_new(object, "receiver", json_string(o->reading->name));
	json_object_set_new(object, "touch_received", json_boolean(o->touch_received));
	report__set(object, "coalesce_us", o->coalesce_us);
	report__set(object, "buffer_bytes", o->buffer_bytes);
	json_object_set_new(object, "rcvbuf_bytes", count_or_null(o->socket.rcvbuf_bytes));
}

json_t *options__json(const struct options *o)
{
	const char *used = *o->socket.congestion_used ? o->socket.congestion_used : o->socket.congestion;
	json_t *object = json_object();

	json_object_set_new(object, "size_bytes", count_or_null(o->shape.size_bytes));
	report__set(object, "fields", o->shape.fields);
	report__set(object, "threads", o->threads);
	json_object_set_new(object, "mode", json_string(mode_names[o->mode]));
	json_object_set_new(object, "address", json_string(o->socket.address));
	report__set(object, "port", o->socket.port);
	json_object_set_new(object, "nodelay", json_boolean(o->socket.nodelay));
	/* Asked for, or what the first connection got; null: there was no connection. */
	json_object_set_new(object, "congestion_control",
			    *used ? json_string(used) : json_null());
	report__set(object, "working_set_messages", o->shape.slots);
	json_object_set_new(object, "tls", json_string(tls_names[o->tls]));
	json_object_set_new(object, "touch", json_boolean(o->touch));
	json_object_set_new(object, "verify", json_boolean(o->verify));
	json_object_set_new(object, "cpus", cpus_json(&o->placement));
	json_object_set_new(object, "control", json_boolean(o->control));
	json_object_set_new(object, "moves", moves_json(o));
	if (o->role == ROLE_SEND)
		add_send_options(object, o);
	else
		add_recv_options(object, o);
	return object;
}
