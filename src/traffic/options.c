// SPDX-License-Identifier: GPL-2.0-only
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "option_table.h"
#include "options.h"
#include "quantity.h"

#define DEFAULT_DURATION_S 10
#define DEFAULT_TIME_EVERY 16
#define DEFAULT_WORKING_SET_BYTES (1u << 20)

const char *const role_names[] = { [ROLE_SEND] = "send", [ROLE_RECV] = "recv" };
const char *const mode_names[] = { [MODE_STREAM] = "stream", [MODE_RR] = "rr" };
const char *const sending_names[] = { [SENDING_THREADS] = "threads", [SENDING_LOOP] = "loop" };
const char *const rewrite_names[] = {
	[REWRITE_OFF] = "off", [REWRITE_RETURNED] = "returned", [REWRITE_ARRIVED] = "arrived",
};
_Static_assert(sizeof(role_names) / sizeof(*role_names) == ROLE_CNT, "a name each");
_Static_assert(sizeof(mode_names) / sizeof(*mode_names) == MODE_CNT, "a name each");
_Static_assert(sizeof(sending_names) / sizeof(*sending_names) == SENDING_CNT, "a name each");
_Static_assert(sizeof(rewrite_names) / sizeof(*rewrite_names) == REWRITE_CNT, "a name each");

/* Parser state: the parsed options, the defaults, and the options as typed. */
struct command_line {
	struct options *options;
	struct options defaults;
	const char *given[OPTION_ROWS_MAX];	/* value of the option of each row as typed, "" for a flag; NULL: not given */
};

static int parse_impl(struct options *options, const char *name, struct failure *failure)
{
	const char *nearest;
	char names[160];

	options->strategy = strategy__find(name);
	if (options->strategy)
		return 0;
	if (strategy__is_absent(name))
		return failure__set(failure, -EINVAL, "--impl %s: not in this build, because liburing 2.3 or newer was missing; "
				    "run tools/deps.sh (it installs liburing-dev), then make", name);
	nearest = strategy__suggest(name);
	strategy__list_names(names, sizeof(names));
	return failure__set(failure, -EINVAL, "--impl %s: unknown strategy; %s%s%schoose %s", name,
			    nearest ? "did you mean " : "", nearest ? nearest : "",
			    nearest ? "? " : "", names);
}

static int parse_reading(struct options *options, const char *name, struct failure *failure)
{
	const char *names[CHOICES_MAX];
	unsigned int index = 0;
	int err = quantity__choice("receiver", name, names, reading__names(names), &index, failure);

	options->reading = readings[index];
	if (err || options->reading->receive || options->reading->start)
		return err;
	return failure__set(failure, -EINVAL, "--receiver %s: not in this build, because liburing 2.3 or newer was missing; run "
			    "tools/deps.sh (it installs liburing-dev), then make", name);
}

static int parse_text(const char **field, const struct option_row *row, const char *text, struct failure *failure)
{
	size_t length = strlen(text);

	*field = text;
	if (length >= row->least && length <= row->most)
		return 0;
	return failure__set(failure, -EINVAL, "--%s %s: wrong length; use %llu to %llu characters", row->name, text,
			    (unsigned long long)row->least, (unsigned long long)row->most);
}

static int parse_row(struct options *o, const struct option_row *row, const char *text, struct failure *failure)
{
	void *field = (char *)o + row->offset;
	unsigned int choice = 0;
	uint64_t number = 1;
	int err = 0;

	switch (row->type) {
	case TYPE_STRATEGY:
		return parse_impl(o, text, failure);
	case TYPE_READING:
		return parse_reading(o, text, failure);
	case TYPE_LIST:
		return placement__parse(field, text, failure);
	case TYPE_TEXT:
		return parse_text(field, row, text, failure);
	case TYPE_DURATION:
		return quantity__seconds(row->name, text, row->most, field, failure);
	case TYPE_COUNT:
		err = quantity__count(row->name, text, row->least, row->most, &number, failure);
		break;
	case TYPE_SIZE:
		err = quantity__size(row->name, text, row->least, row->most, &number, failure);
		break;
	case TYPE_CHOICE:
		err = quantity__choice(row->name, text, row->choices, row->most, &choice, failure);
		number = choice;
		break;
	case TYPE_FLAG:
		break;
	}
	if (!err)
		option_row__store(row, o, number);
	return err;
}

static bool is_set(const void *base, const struct option_need *need)
{
	static const char zero[8];

	return memcmp((const char *)base + need->offset, zero, need->bytes);
}

bool option_row__is_taken(const struct option_row *row, const struct options *o)
{
	const void *base = o->role == ROLE_SEND ? (const void *)o->strategy : o->reading;

	return !row->need.bytes || row->need.role != o->role || is_set(base, &row->need) != row->need.unset;
}

/* Refuse an option that the strategy or reading does not accept, unless its value is the default. */
static int check_needs(const struct command_line *line, struct failure *failure)
{
	const struct options *o = line->options;

	for (const struct option_row *row = option_rows; row->name; row++) {
		const char *text = line->given[row - option_rows];
		bool sends = o->role == ROLE_SEND;
		char use[64] = "";

		if (!text || option_row__is_taken(row, o))
			continue;
		if (row->initial && option_row__load(row, o) == option_row__load(row, &line->defaults))
			continue;
		if (row->need.use)
			snprintf(use, sizeof(use), ", or use --%s %s", sends ? "impl" : "receiver", row->need.use);
		return failure__set(failure, -EINVAL, "--%s%s%s: %s %s; leave --%s out%s", row->name, *text ? " " : "", text,
				    sends ? o->strategy->name : o->reading->name, row->need.reason, row->name, use);
	}
	return 0;
}

/* Return the number of messages in about 1 MiB. All strategies have the same number, so that cache misses are comparable. */
static unsigned int default_working_set(size_t size_bytes)
{
	size_t slots = size_bytes ? DEFAULT_WORKING_SET_BYTES / size_bytes : 4;

	return slots < 4 ? 4 : slots > 1024 ? 1024 : slots;
}

/* Check --rewrite: the last message needs memory of its own, and the receiver reads only after the command `settle`. */
static int check_rewrite(const struct options *o, struct failure *failure)
{
	const unsigned int slots = o->shape.slots ?: default_working_set(o->shape.size_bytes);

	if (o->verify || o->mode == MODE_RR)
		return failure__set(failure, -EINVAL, "--rewrite: not together with %s, because the receiver reads only after the "
				    "rewrite; leave one of them out", o->verify ? "--verify" : "--mode rr");
	if (o->role == ROLE_RECV && !o->control)
		return failure__set(failure, -EINVAL, "--rewrite: works only with --control, because `settle` starts the "
				    "receiver; add --control");
	if (o->role == ROLE_RECV && (reading__is_blind(o->reading) || o->reading->start))
		return failure__set(failure, -EINVAL, "--rewrite: not together with --receiver %s; use read or recvmsg",
				    o->reading->name);
	if (o->role == ROLE_RECV)
		return 0;
	if (!o->messages || o->messages > slots)
		return failure__set(failure, -EINVAL, "--rewrite: overwrites the last of --messages, which needs its own memory; "
				    "give --messages, at most as many as --working-set holds (%u)", slots);
	if (o->strategy->relays || o->simulated || o->sending == SENDING_LOOP || o->wait != NOTICES_BATCH)
		return failure__set(failure, -EINVAL, "--rewrite: not together with a relay, --simulated, --sender loop or --wait; "
				    "leave one of them out");
	return 0;
}

static int check_message(const struct options *o, struct failure *failure)
{
	const struct message_shape *shape = &o->shape;

	if (shape->header_bytes && shape->fields < 2)
		return failure__set(failure, -EINVAL, "--header %zu: with one field, the message has only the header; use "
				    "--fields 2", shape->header_bytes);
	if (shape->header_bytes && shape->size_bytes < shape->header_bytes + shape->fields - 1)
		return failure__set(failure, -EINVAL, "--header %zu: leaves less than a byte for each of the other %u fields; "
				    "raise --size or lower --header", shape->header_bytes, shape->fields - 1);
	if (shape->size_bytes && shape->size_bytes < shape->fields)
		return failure__set(failure, -EINVAL, "--size %zu: smaller than %u fields of one byte; raise "
				    "--size or lower --fields", shape->size_bytes, shape->fields);
	return 0;
}

static int check_send(const struct command_line *line, struct failure *failure)
{
	const struct options *o = line->options;

	if (o->messages && o->duration_s)
		return failure__set(failure, -EINVAL, "--duration: not together with --messages, because only one of them "
				    "can end the run; leave one of them out");
	/* A relay has one field, and `copyscope run` passes the resolved value 1 to it. */
	if (o->strategy->relays && o->shape.fields != 1 && o->shape.fields != line->defaults.shape.fields)
		return failure__set(failure, -EINVAL, "--fields %u: %s forwards a stream without fields; leave --fields out",
				    o->shape.fields, o->strategy->name);
	if (o->wait == NOTICES_NEVER && o->strategy->in_ring)
		return failure__set(failure, -EINVAL, "--wait never: %s receives its notifications together with its results; "
				    "use --wait each, or --impl zero_copy", o->strategy->name);
	if (o->wait == NOTICES_NEVER && (o->touch || o->verify))
		return failure__set(failure, -EINVAL, "--wait never: not together with --%s: without notifications the sender "
				    "does not know when it may rewrite a buffer; leave one of them out",
				    o->touch ? "touch" : "verify");
	/* The combination is allowed with --rewrite, which tests whether the kernel refuses zero-copy sends. */
	if (o->tls && o->strategy->reap && !o->rewrite)
		return failure__set(failure, -EINVAL, "--tls %s: not together with %s: a kTLS socket refuses MSG_ZEROCOPY and "
				    "SEND_ZC (EOPNOTSUPP); leave --tls out, or use --impl one_copy or sendfile",
				    tls_names[o->tls], o->strategy->name);
	if (o->sending == SENDING_LOOP && o->mode == MODE_RR)
		return failure__set(failure, -EINVAL, "--mode rr: not together with --sender loop, because all connections would "
				    "wait for the answer on one of them; use --sender threads");
	if (o->simulated && (!o->messages || o->control || o->sending != SENDING_THREADS))
		return failure__set(failure, -EINVAL, "--simulated: needs a number of messages for each thread; give "
				    "--messages, leave --sender and --control out");
	if (o->answered && (!o->simulated || o->mode == MODE_RR))
		return failure__set(failure, -EINVAL, "--answered: works only with --simulated in stream mode; "
				    "add --simulated, and leave --mode out");
	return 0;
}

static int check_recv(const struct options *o, struct failure *failure)
{
	if (!o->socket.port)
		return failure__set(failure, -EINVAL, "--port: missing; give the port that the sender printed");
	if (!o->shape.size_bytes && (o->verify || o->mode == MODE_RR))
		return failure__set(failure, -EINVAL, "--size: missing; %s needs the size of the sender's messages",
				    o->verify ? "--verify" : "--mode rr");
	if ((o->verify || o->touch_received) && reading__is_blind(o->reading))
		return failure__set(failure, -EINVAL, "--%s: not together with --receiver %s, which does not pass the bytes to "
				    "the program; use read or recvmsg", o->verify ? "verify" : "touch-received",
				    o->reading->name);
	if (o->tls && (o->reading->way == WAY_DROPPED || o->reading->way == WAY_MAPPED))
		return failure__set(failure, -EINVAL, "--tls %s: not together with --receiver %s, which receives encrypted bytes; "
				    "use read or recvmsg", tls_names[o->tls], o->reading->name);
	if (o->reading->whole_pages && o->buffer_bytes < (uint64_t)sysconf(_SC_PAGESIZE))
		return failure__set(failure, -EINVAL, "--buffer %llu: smaller than a page of memory, and --receiver %s maps "
				    "whole pages; raise --buffer", (unsigned long long)o->buffer_bytes, o->reading->name);
	if (o->coalesce_us && o->mode == MODE_RR)
		return failure__set(failure, -EINVAL, "--coalesce: not together with --mode rr, because each round trip would "
				    "wait for the timer; leave --coalesce out");
	if (o->reading->into_fields && o->buffer_bytes < o->shape.fields)
		return failure__set(failure, -EINVAL, "--buffer %llu: smaller than %u fields of one byte; raise --buffer or lower "
				    "--fields", (unsigned long long)o->buffer_bytes, o->shape.fields);
	return 0;
}

/* Check the conditions that involve several options. */
static int check_together(const struct command_line *line, struct failure *failure)
{
	const struct options *o = line->options;
	int err = check_message(o, failure);

	if (!err && o->role == ROLE_SEND && !o->strategy)
		err = failure__set(failure, -EINVAL, "--impl: missing; choose a strategy of `traffic list`");
	if (!err)
		err = check_needs(line, failure);
	if (!err)
		err = o->role == ROLE_SEND ? check_send(line, failure) : check_recv(o, failure);
	return err || !o->rewrite ? err : check_rewrite(o, failure);
}

/* Set the defaults that depend on other options. */
static void resolve_defaults(struct options *o)
{
	o->shape.in_file = o->strategy && o->strategy->in_file;
	if (o->strategy && o->strategy->relays)
		o->shape.fields = 1;
	/* vmsplice() needs memory that is not reused: free() writes to heap memory while a receiver may still read it. */
	o->shape.in_arena = o->registered || (o->strategy && o->strategy->gives_memory);
	if (!o->shape.slots)
		o->shape.slots = default_working_set(o->shape.size_bytes);
	if (!o->time_every)
		o->time_every = o->messages ? 1 : DEFAULT_TIME_EVERY;
	if (o->role == ROLE_SEND && !o->messages && !o->duration_s && !o->control)
		o->duration_s = DEFAULT_DURATION_S;
}

static _Noreturn void refuse(const struct options *options, const struct failure *failure)
{
	fprintf(stderr, "traffic %s: %s\n", role_names[options->role], failure->text);
	exit(EXIT_USAGE);
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct command_line *line = state->input;
	struct failure failure = { "" };
	unsigned int index = key - KEY_FIRST_ROW;

	if (key == ARGP_KEY_ARG) {
		failure__set(&failure, -EINVAL, "unexpected argument '%s'; see --help", arg);
		refuse(line->options, &failure);
	}
	if (key == KEY_HELP) {
		argp_help(state->root_argp, stdout, ARGP_HELP_STD_HELP, state->name);
		exit(0);
	}
	if (key < KEY_FIRST_ROW || index >= OPTION_ROWS_MAX)
		return ARGP_ERR_UNKNOWN;
	if (parse_row(line->options, &option_rows[index], arg, &failure))
		refuse(line->options, &failure);
	line->given[index] = arg ?: "";
	line->options->simulated |= !strcmp(option_rows[index].name, "simulated");
	return 0;
}

static void set_defaults(struct options *options, enum role role)
{
	struct failure failure = { "" };

	memset(options, 0, sizeof(*options));
	options->role = role;
	for (const struct option_row *row = option_rows; row->name; row++)
		if (row->initial && row->roles & 1u << role && parse_row(options, row, row->initial, &failure))
			refuse(options, &failure);
}

void options__parse(struct options *options, enum role role, int argc, char **argv)
{
	struct command_line line = { .options = options };
	struct argp_option rows[OPTION_ROWS_MAX];
	struct argp argp = {
		.options = rows, .parser = parse_option, .doc = option_table__doc(role), .help_filter = option_table__help,
	};
	struct failure failure = { "" };
	char name[32];

	set_defaults(options, role);
	line.defaults = *options;
	option_table__select(role, rows);
	snprintf(name, sizeof(name), "traffic %s", role_names[role]);
	argv[0] = name;

	/* Check the names here, because the error messages of argp have two lines. */
	if (option_table__check_names(rows, argc, argv, &failure))
		refuse(options, &failure);
	if (argp_parse(&argp, argc, argv, ARGP_NO_ERRS | ARGP_NO_HELP, NULL, &line)) {
		failure__set(&failure, -EINVAL, "%s: a value is missing or unexpected; see --help",
			     argv[argc - 1]);
		refuse(options, &failure);
	}
	if (check_together(&line, &failure))
		refuse(options, &failure);
	resolve_defaults(options);
}
