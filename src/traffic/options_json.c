// SPDX-License-Identifier: GPL-2.0-only
#include "option_table.h"
#include "options.h"

static json_t *cpus_json(const struct placement *placement)
{
	json_t *cpus = json_array();

	for (unsigned int i = 0; i < placement->count; i++)
		json_array_append_new(cpus, json_integer(placement->cpus[i]));
	return cpus;
}

/* Return the ways other than plain copies by which bytes move. The collector (--moves) hooks kernel functions only for these. */
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

static json_t *text_or_null(const char *text)
{
	return text ? json_string(text) : json_null();
}

/* Return a number as JSON: null if it is below its lower limit, because then the option was not given. */
static json_t *number_json(const struct option_row *row, uint64_t number)
{
	if (row->type == TYPE_FLAG || (row->type == TYPE_CHOICE && row->bytes == sizeof(bool)))
		return json_boolean(number);
	if (row->type == TYPE_CHOICE)
		return json_string(row->choices[number]);
	return number < row->least ? json_null() : json_integer((json_int_t)number);
}

static json_t *value_json(const struct option_row *row, const struct options *o)
{
	const void *field = (const char *)o + row->offset;

	switch (row->type) {
	case TYPE_STRATEGY:
		return json_string(o->strategy->name);
	case TYPE_READING:
		return json_string(o->reading->name);
	case TYPE_LIST:
		return cpus_json(field);
	case TYPE_TEXT:
		return text_or_null(*(const char *const *)field);
	case TYPE_DURATION:
		return *(const double *)field ? json_real(*(const double *)field) : json_null();
	default:
		return number_json(row, option_row__load(row, o));
	}
}

json_t *options__json(const struct options *o)
{
	json_t *object = json_object();

	for (const struct option_row *row = option_rows; row->name; row++)
		if (row->key && row->roles & 1u << o->role)
			json_object_set_new(object, row->key, value_json(row, o));
	/* After the first connection, report its congestion control. */
	if (*o->socket.congestion_used)
		json_object_set_new(object, "congestion_control", json_string(o->socket.congestion_used));
	if (o->rewrite)
		json_object_set_new(object, "rewrite", json_string(rewrite_names[o->rewrite]));
	json_object_set_new(object, "moves", moves_json(o));
	if (o->role != ROLE_SEND)
		return object;
	if (!o->strategy->in_ring)
		json_object_set_new(object, "issue", json_null());
	json_object_set_new(object, "relays", json_boolean(o->strategy->relays));
	/* A call may use the socket several times, or differ from the four send calls that bpf/calls.bpf.c recognises. */
	json_object_set_new(object, "in_pieces",
			    json_boolean(strategy__gives_pages(o->strategy) || o->strategy->in_ring ||
					 o->call != VECTORED_SENDMSG || o->batch > 1));
	return object;
}

static json_t *choices_json(const struct option_row *row)
{
	const char *names[CHOICES_MAX];
	unsigned int count = option_row__choices(row, names);
	json_t *array = json_array();

	for (unsigned int i = 0; i < count; i++)
		json_array_append_new(array, json_string(names[i]));
	return array;
}

json_t *option_row__json(const struct option_row *row)
{
	static const char *const types[] = {
		[TYPE_COUNT] = "count", [TYPE_SIZE] = "size", [TYPE_DURATION] = "duration", [TYPE_FLAG] = "flag",
		[TYPE_CHOICE] = "choice", [TYPE_TEXT] = "text", [TYPE_LIST] = "list", [TYPE_STRATEGY] = "choice",
		[TYPE_READING] = "choice",
	};
	bool is_number = row->type == TYPE_COUNT || row->type == TYPE_SIZE || row->type == TYPE_DURATION;
	json_t *object = json_object();

	json_object_set_new(object, "name", json_string(row->name));
	json_object_set_new(object, "role", json_string(row->roles & 1u << ROLE_SEND && row->roles & 1u << ROLE_RECV ? "both" :
							role_names[row->roles & 1u << ROLE_SEND ? ROLE_SEND : ROLE_RECV]));
	json_object_set_new(object, "type", json_string(types[row->type]));
	json_object_set_new(object, "unit", text_or_null(row->unit));
	json_object_set_new(object, "least", is_number ? json_integer((json_int_t)row->least) : json_null());
	json_object_set_new(object, "most", is_number ? json_integer((json_int_t)row->most) : json_null());
	json_object_set_new(object, "choices", choices_json(row));
	json_object_set_new(object, "default", text_or_null(row->initial));
	json_object_set_new(object, "help", json_string(row->help));
	json_object_set_new(object, "key", text_or_null(row->key));
	json_object_set_new(object, "factor", json_boolean(row->flags & IN_RUN));
	json_object_set_new(object, "workload", json_boolean(row->flags & IN_WORKLOAD));
	return object;
}
