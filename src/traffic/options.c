// SPDX-License-Identifier: GPL-2.0
#include <argp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "option_table.h"
#include "options.h"
#include "quantity.h"

#define DEFAULT_SIZE_BYTES (64u << 10)
#define DEFAULT_FIELDS 8
#define DEFAULT_DURATION_S 10
#define DEFAULT_TIME_EVERY 16
#define DEFAULT_BUFFER_BYTES (128u << 10)
#define DEFAULT_WORKING_SET_BYTES (1u << 20)
#define DURATION_MAX_S 86400
#define COALESCE_MAX_US 100000
/* on_send_bytes_at_exit() looks at so many (bpf/bytes.bpf.c). */
#define BATCH_MAX 64

const char *const role_names[] = { [ROLE_SEND] = "send", [ROLE_RECV] = "recv" };
const char *const mode_names[] = { [MODE_STREAM] = "stream", [MODE_RR] = "rr" };
const char *const sending_names[] = { [SENDING_THREADS] = "threads", [SENDING_LOOP] = "loop" };
_Static_assert(sizeof(role_names) / sizeof(*role_names) == ROLE_CNT, "a name each");
_Static_assert(sizeof(mode_names) / sizeof(*mode_names) == MODE_CNT, "a name each");
_Static_assert(sizeof(sending_names) / sizeof(*sending_names) == SENDING_CNT, "a name each");

static int parse_impl(struct options *options, const char *name, struct failure *failure)
{
	const char *nearest;
	char names[160];

	options->strategy = strategy__find(name);
	if (options->strategy)
		return 0;
	if (strategy__is_absent(name))
		return failure__set(failure, -EINVAL, "impl: %s: not in this build: it needs liburing 2.3 or newer: "
				    "run tools/deps.sh (it installs liburing-dev), then make", name);
	nearest = strategy__suggest(name);
	strategy__list_names(names, sizeof(names));
	return failure__set(failure, -EINVAL, "impl: '%s': unknown strategy: %s%s%suse one of: %s", name,
			    nearest ? "did you mean " : "", nearest ? nearest : "",
			    nearest ? "? " : "", names);
}

static int parse_reading(struct options *options, const char *name, struct failure *failure)
{
	const char *names[READINGS_MAX];
	unsigned int index = 0;
	int err = quantity__choice("receiver", name, names, reading__names(names), &index, failure);

	options->reading = readings[index];
	if (err || options->reading->receive || options->reading->start)
		return err;
	return failure__set(failure, -EINVAL, "receiver: %s: not in this build: it needs liburing 2.3 or newer: run "
			    "tools/deps.sh (it installs liburing-dev), then make", name);
}

static int parse_congestion(struct options *options, const char *name, struct failure *failure)
{
	if (!*name || strlen(name) >= sizeof(options->socket.congestion))
		return failure__set(failure, -EINVAL, "congestion: '%s': not the name of a congestion "
				    "control", name);
	strcpy(options->socket.congestion, name);
	return 0;
}

/* One argument. The whole numbers go through `number`, choices through `index`. */
static int parse_value(struct options *o, int key, const char *arg, struct failure *failure)
{
	const unsigned int port_min = o->role == ROLE_RECV;
	unsigned int index = 0;
	uint64_t number = 0;
	int err = 0;

	switch (key) {
	case OPT_IMPL:
		return parse_impl(o, arg, failure);
	case OPT_SIZE:
		err = quantity__size("size", arg, 1, MESSAGE_BYTES_MAX, &number, failure);
		o->shape.size_bytes = number;
		return err;
	case OPT_FIELDS:
		err = quantity__count("fields", arg, 1, MESSAGE_FIELDS_MAX, &number, failure);
		o->shape.fields = number;
		return err;
	case OPT_HEADER:
		err = quantity__size("header", arg, 1, MESSAGE_BYTES_MAX, &number, failure);
		o->shape.header_bytes = number;
		return err;
	case OPT_THREADS:
		err = quantity__count("threads", arg, 1, THREADS_MAX, &number, failure);
		o->threads = number;
		return err;
	case OPT_ADDRESS:
		o->socket.address = arg;
		return 0;
	case OPT_PORT:
		err = quantity__count("port", arg, port_min, UINT16_MAX, &number, failure);
		o->socket.port = number;
		return err;
	case OPT_DURATION:
		return quantity__seconds("duration", arg, DURATION_MAX_S, &o->duration_s, failure);
	case OPT_MESSAGES:
		return quantity__count("messages", arg, 1, 1ull << 48, &o->messages, failure);
	case OPT_ALIGN:
		err = quantity__choice("align", arg, alignment_names, ALIGN_CNT, &index, failure);
		o->shape.align = index;
		return err;
	case OPT_PAGES:
		err = quantity__choice("pages", arg, page_kind_names, PAGES_CNT, &index, failure);
		o->shape.pages = index;
		return err;
	case OPT_FILE:
		o->shape.directory = arg;
		return 0;
	case OPT_WORKING_SET:
		err = quantity__count("working-set", arg, 1, WORKING_SET_MAX, &number, failure);
		o->shape.slots = number;
		return err;
	case OPT_TOUCH:
		o->touch = true;
		return 0;
	case OPT_VERIFY:
		o->verify = true;
		return 0;
	case OPT_MODE:
		err = quantity__choice("mode", arg, mode_names, MODE_CNT, &index, failure);
		o->mode = index;
		return err;
	case OPT_NODELAY:
		return quantity__switch("nodelay", arg, &o->socket.nodelay, failure);
	case OPT_CONGESTION:
		return parse_congestion(o, arg, failure);
	case OPT_SNDBUF:
		err = quantity__size("sndbuf", arg, SOCKET_BUFFER_MIN, INT32_MAX, &number, failure);
		o->socket.sndbuf_bytes = number;
		return err;
	case OPT_RCVBUF:
		err = quantity__size("rcvbuf", arg, SOCKET_BUFFER_MIN, INT32_MAX, &number, failure);
		o->socket.rcvbuf_bytes = number;
		return err;
	case OPT_CPUS:
		return placement__parse(&o->placement, arg, failure);
	case OPT_TIME_EVERY:
		err = quantity__count("time-every", arg, 1, 1u << 30, &number, failure);
		o->time_every = number;
		return err;
	case OPT_SEED:
		return quantity__count("seed", arg, 0, INT64_MAX, &o->seed, failure);
	case OPT_SENDING:
		err = quantity__choice("sender", arg, sending_names, SENDING_CNT, &index, failure);
		o->sending = index;
		return err;
	case OPT_READING:
		return parse_reading(o, arg, failure);
	case OPT_TOUCH_RECEIVED:
		o->touch_received = true;
		return 0;
	case OPT_ISSUE:
		err = quantity__choice("issue", arg, issue_names, ISSUE_CNT, &index, failure);
		o->issue = index;
		return err;
	case OPT_PUSH:
		err = quantity__choice("push", arg, push_names, PUSH_CNT, &index, failure);
		o->push = index;
		return err;
	case OPT_CALL:
		err = quantity__choice("call", arg, vectored_names, VECTORED_CNT, &index, failure);
		o->call = index;
		return err;
	case OPT_VIA:
		err = quantity__choice("via", arg, via_names, VIA_CNT, &index, failure);
		o->via = index;
		return err;
	case OPT_WAIT:
		err = quantity__choice("wait", arg, notices_names, NOTICES_CNT, &index, failure);
		o->wait = index;
		return err;
	case OPT_BATCH:
		err = quantity__count("batch", arg, 1, BATCH_MAX, &number, failure);
		o->batch = number;
		return err;
	case OPT_TLS:
		err = quantity__choice("tls", arg, tls_names, TLS_CNT, &index, failure);
		o->tls = index;
		return err;
	case OPT_REGISTERED:
		o->shape.in_arena = true;
		return 0;
	case OPT_COALESCE:
		return quantity__count("coalesce", arg, 0, COALESCE_MAX_US, &o->coalesce_us, failure);
	case OPT_BUFFER:
		return quantity__size("buffer", arg, 1, MESSAGE_BYTES_MAX, &o->buffer_bytes, failure);
	case OPT_SIMULATED:
		o->simulated = true;
		return quantity__count("simulated", arg, 0, 1ull << 48, &o->warm_messages, failure);
	case OPT_ANSWERED:
		o->answered = true;
		return 0;
	case OPT_ANSWER:
		return quantity__count("answer", arg, 1, INT64_MAX, &o->answer_bytes[!!o->answer_bytes[0]], failure);
	case OPT_CHECK:
		o->check = true;
		return 0;
	case OPT_CONTROL:
		o->control = true;
		return 0;
	}
	return -ENOENT;
}

/* What is about messages that a sender makes itself, or about answers. */
static int check_relay(const struct options *o, struct failure *failure)
{
	const char *name = o->strategy->name;

	if (o->touch)
		return failure__set(failure, -EINVAL, "touch: %s: a relay passes on what comes to it: leave --touch out", name);
	if (o->shape.fields != 1 && o->shape.fields != DEFAULT_FIELDS)
		return failure__set(failure, -EINVAL, "fields: %u: %s passes on a stream, of no fields: leave --fields out",
				    o->shape.fields, name);
	if (o->shape.header_bytes)
		return failure__set(failure, -EINVAL, "header: %zu: %s passes on a stream, of no fields: leave --header out",
				    o->shape.header_bytes, name);
	if (o->shape.align != ALIGN_HEAP)
		return failure__set(failure, -EINVAL, "align: %s: %s has no fields: leave --align out",
				    alignment_names[o->shape.align], name);
	if (o->shape.pages != PAGES_4K)
		return failure__set(failure, -EINVAL, "pages: %s: %s has no messages in memory: leave --pages out",
				    page_kind_names[o->shape.pages], name);
	if (o->mode == MODE_RR)
		return failure__set(failure, -EINVAL, "mode: rr: %s passes on in one direction, and no answers: leave --mode out",
				    name);
	if (o->tls)
		return failure__set(failure, -EINVAL, "tls: %s: what comes to it is plain: leave --tls out", name);
	if (o->simulated)
		return failure__set(failure, -EINVAL, "simulated: %s: the process before it would be counted with it: leave "
				    "--simulate out", name);
	return 0;
}

/* What no single option can know. */
static int check_together(const struct options *o, struct failure *failure)
{
	const struct message_shape *shape = &o->shape;
	const size_t size_bytes = shape->size_bytes ?: DEFAULT_SIZE_BYTES;

	if (shape->header_bytes && shape->fields < 2)
		return failure__set(failure, -EINVAL, "header: %zu: a message of one field is all header: use --fields 2",
				    shape->header_bytes);
	if (shape->header_bytes && size_bytes < shape->header_bytes + shape->fields - 1)
		return failure__set(failure, -EINVAL, "header: %zu: leaves less than a byte for each of the other %u fields: raise "
				    "--size or lower --header", shape->header_bytes, shape->fields - 1);
	if (shape->size_bytes && shape->size_bytes < shape->fields)
		return failure__set(failure, -EINVAL, "size: %zu: smaller than %u fields of one byte: raise "
				    "--size or lower --fields", shape->size_bytes, shape->fields);
	if (o->role == ROLE_SEND) {
		if (!o->strategy)
			return failure__set(failure, -EINVAL, "impl: missing: name a strategy: see "
					    "`traffic list`");
		if (o->messages && o->duration_s)
			return failure__set(failure, -EINVAL, "duration: given with --messages: a run ends "
					    "by one of them: drop the other");
		if (shape->directory && !o->strategy->in_file)
			return failure__set(failure, -EINVAL, "file: %s: %s does not send from a file: leave --file "
					    "out", shape->directory, o->strategy->name);
		if (o->issue != ISSUE_INLINE && !o->strategy->in_ring)
			return failure__set(failure, -EINVAL, "issue: %s: %s does not send through io_uring: leave --issue "
					    "out", issue_names[o->issue], o->strategy->name);
		if (o->push != PUSH_NONE && !o->strategy->by_field)
			return failure__set(failure, -EINVAL, "push: %s: %s sends a message in one piece: leave --push out, "
					    "or use --impl per_field", push_names[o->push], o->strategy->name);
		if (o->batch > 1 && !o->strategy->by_field)
			return failure__set(failure, -EINVAL, "batch: %u: %s sends a message in one piece: leave --batch "
					    "out, or use --impl per_field", o->batch, o->strategy->name);
		if (o->call != VECTORED_SENDMSG && !o->strategy->vectored)
			return failure__set(failure, -EINVAL, "call: %s: %s does not send by it: leave --call out, or use "
					    "--impl one_copy", vectored_names[o->call], o->strategy->name);
		if (o->via != VIA_SENDFILE && !o->strategy->in_file)
			return failure__set(failure, -EINVAL, "via: %s: %s does not send from a file: leave --via out, or "
					    "use --impl sendfile", via_names[o->via], o->strategy->name);
		if (o->wait != NOTICES_BATCH && !o->strategy->reap)
			return failure__set(failure, -EINVAL, "wait: %s: %s gets no notices: leave --wait out, or use --impl "
					    "zero_copy", notices_names[o->wait], o->strategy->name);
		if (o->wait == NOTICES_NEVER && o->strategy->in_ring)
			return failure__set(failure, -EINVAL, "wait: never: %s reads its notices with its results: use each, or "
					    "--impl zero_copy", o->strategy->name);
		if (o->wait == NOTICES_NEVER && (o->touch || o->verify))
			return failure__set(failure, -EINVAL, "wait: never: with --%s: without notices the sender does "
					    "not know when it may rewrite a buffer: leave one of them out",
					    o->touch ? "touch" : "verify");
		if (shape->in_arena && !o->strategy->registers)
			return failure__set(failure, -EINVAL, "registered: %s: the kernel takes registered buffers of "
					    "SEND_ZC only: leave --registered out, or use --impl uring_zc",
					    o->strategy->name);
		if (o->tls && o->strategy->reap)
			return failure__set(failure, -EINVAL, "tls: %s: a kTLS socket refuses MSG_ZEROCOPY and SEND_ZC "
					    "(EOPNOTSUPP): leave --tls out, or use --impl one_copy or sendfile",
					    o->strategy->name);
		if (o->sending == SENDING_LOOP && o->mode == MODE_RR)
			return failure__set(failure, -EINVAL, "mode: rr: with --sender loop one connection at a "
					    "time would wait for its answer, and the others for it: use --sender "
					    "threads");
		if (o->simulated && (!o->messages || o->control || o->sending != SENDING_THREADS))
			return failure__set(failure, -EINVAL, "simulated: a number of messages of each thread: give "
					    "--messages, leave --sender and --control out");
		if (o->answered && (!o->simulated || o->mode == MODE_RR))
			return failure__set(failure, -EINVAL, "answered: only with --simulated: add it");
		return o->strategy->relays ? check_relay(o, failure) : 0;
	}
	if (!o->socket.port)
		return failure__set(failure, -EINVAL, "port: missing: give the port the sender printed");
	if (!shape->size_bytes && (o->verify || o->mode == MODE_RR))
		return failure__set(failure, -EINVAL, "size: missing: %s needs to know where a message ends",
				    o->verify ? "--verify" : "--mode rr");
	if ((o->verify || o->touch_received) && reading__is_blind(o->reading))
		return failure__set(failure, -EINVAL, "%s: with --receiver %s: there is nothing to look at: use read or "
				    "recvmsg", o->verify ? "verify" : "touch-received", o->reading->name);
	if (o->tls && (o->reading->way == WAY_DROPPED || o->reading->way == WAY_MAPPED))
		return failure__set(failure, -EINVAL, "tls: with --receiver %s: it takes what was not decrypted: use read or "
				    "recvmsg", o->reading->name);
	if (o->coalesce_us && !o->reading->by_timer)
		return failure__set(failure, -EINVAL, "coalesce: with --receiver %s: it sleeps in its read: use "
				    "--receiver poll", o->reading->name);
	if (o->reading->whole_pages && o->buffer_bytes < (uint64_t)sysconf(_SC_PAGESIZE))
		return failure__set(failure, -EINVAL, "buffer: %llu: smaller than a page of memory, and --receiver %s takes "
				    "whole ones", (unsigned long long)o->buffer_bytes, o->reading->name);
	if (o->coalesce_us && o->mode == MODE_RR)
		return failure__set(failure, -EINVAL, "coalesce: with --mode rr: each round trip would wait for the "
				    "timer: leave --coalesce out");
	if (o->reading->into_fields && o->buffer_bytes < shape->fields)
		return failure__set(failure, -EINVAL, "buffer: %llu: smaller than %u fields",
				    (unsigned long long)o->buffer_bytes, shape->fields);
	return 0;
}

/* About 1 MiB of messages, the same for every strategy: else they would differ in cache misses. */
static unsigned int default_working_set(size_t size_bytes)
{
	size_t slots = size_bytes ? DEFAULT_WORKING_SET_BYTES / size_bytes : 4;

	return slots < 4 ? 4 : slots > 1024 ? 1024 : slots;
}

static void resolve_defaults(struct options *o)
{
	o->shape.in_file = o->strategy && o->strategy->in_file;
	if (o->strategy && o->strategy->relays)
		o->shape.fields = 1;
	/* Freed memory of the heap is written to, while a receiver may still be reading from it. */
	if (o->strategy && o->strategy->gives_memory)
		o->shape.in_arena = true;
	if (o->role == ROLE_SEND && !o->shape.size_bytes)
		o->shape.size_bytes = DEFAULT_SIZE_BYTES;
	if (!o->shape.slots)
		o->shape.slots = default_working_set(o->shape.size_bytes);
	if (!o->time_every)
		o->time_every = o->messages ? 1 : DEFAULT_TIME_EVERY;
}

static _Noreturn void refuse(const struct options *options, const struct failure *failure)
{
	fprintf(stderr, "traffic %s: %s\n", role_names[options->role], failure->text);
	exit(EXIT_USAGE);
}

static error_t parse_option(int key, char *arg, struct argp_state *state)
{
	struct options *options = state->input;
	struct failure failure = { "" };
	int err;

	if (key == ARGP_KEY_ARG) {
		failure__set(&failure, -EINVAL, "argument: '%s': not an option: see --help", arg);
		refuse(options, &failure);
	}
	if (key == OPT_HELP) {
		argp_help(state->root_argp, stdout, ARGP_HELP_STD_HELP, state->name);
		exit(0);
	}
	err = parse_value(options, key, arg, &failure);
	if (err == -ENOENT)
		return ARGP_ERR_UNKNOWN;
	if (err)
		refuse(options, &failure);
	return 0;
}

void options__parse(struct options *options, enum role role, int argc, char **argv)
{
	struct argp_option rows[OPTION_ROWS_MAX];
	struct argp argp = {
		.options = rows, .parser = parse_option, .doc = option_table__doc(role),
	};
	struct failure failure = { "" };
	char name[32];

	memset(options, 0, sizeof(*options));
	options->role = role;
	options->threads = 1;
	options->batch = 1;
	options->reading = &reading_read;
	options->shape.fields = DEFAULT_FIELDS;
	options->buffer_bytes = DEFAULT_BUFFER_BYTES;
	options->socket.address = "127.0.0.1";
	options->socket.nodelay = true;
	option_table__select(role, rows);
	snprintf(name, sizeof(name), "traffic %s", role_names[role]);
	argv[0] = name;

	/* argp explains a wrong option in two lines of its own; ours is one, and names the nearest. */
	if (option_table__check_names(rows, argc, argv, &failure))
		refuse(options, &failure);
	if (argp_parse(&argp, argc, argv, ARGP_NO_ERRS | ARGP_NO_HELP, NULL, options)) {
		failure__set(&failure, -EINVAL, "%s: a value is missing, or unexpected: see --help",
			     argv[argc - 1]);
		refuse(options, &failure);
	}
	if (check_together(options, &failure))
		refuse(options, &failure);
	resolve_defaults(options);
	if (role == ROLE_SEND && !options->messages && !options->duration_s && !options->control)
		options->duration_s = DEFAULT_DURATION_S;
}
