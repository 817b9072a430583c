// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "option_table.h"

#define SEND (1u << ROLE_SEND)
#define RECV (1u << ROLE_RECV)
#define BOTH (SEND | RECV)

#define DURATION_MAX_S 86400
#define COALESCE_MAX_US 100000
#define COUNTER_MAX (1ull << 48)
/* Highest number of messages of a sendmmsg() call that on_send_bytes_at_exit() reads (bpf/bytes.bpf.c). */
#define BATCH_MAX 64

#define FIELD(member) offsetof(struct options, member), sizeof(((struct options *)0)->member)
#define COUNT(member, least, most) TYPE_COUNT, FIELD(member), least, most
#define SIZE(member, least, most) TYPE_SIZE, FIELD(member), least, most
#define DURATION(member, most) TYPE_DURATION, FIELD(member), 0, most
#define FLAG(member) TYPE_FLAG, FIELD(member), 0, 1
#define CHOICE(member, names) TYPE_CHOICE, FIELD(member), 0, sizeof(names) / sizeof(*names), names
#define TEXT(member, most) TYPE_TEXT, FIELD(member), 1, most

#define STRATEGY(member) ROLE_SEND, offsetof(struct strategy, member), sizeof(((struct strategy *)0)->member)
#define READING(member) ROLE_RECV, offsetof(struct reading, member), sizeof(((struct reading *)0)->member)
#define NEEDS(member, reason, use) .need = { member, false, reason, use }
#define NOT_WITH(member, reason) .need = { member, true, reason, NULL }

static const char *const switch_names[] = { "off", "on" };

const struct option_row option_rows[] = {
	{ "impl", SEND, TYPE_STRATEGY, FIELD(strategy), .unit = "NAME", .key = "impl", .flags = IN_RUN | IN_WORKLOAD,
	  .help = "send strategy, a name of `traffic list`" },
	{ "size", SEND, SIZE(shape.size_bytes, 1, MESSAGE_BYTES_MAX), .initial = "64K", .unit = "BYTES", .key = "size_bytes",
	  .flags = IN_RUN | IN_WORKLOAD, .help = "message size, up to 1G, suffixes K M G" },
	{ "size", RECV, SIZE(shape.size_bytes, 1, MESSAGE_BYTES_MAX), .unit = "BYTES", .key = "size_bytes",
	  .help = "size of the sender's messages; default: unknown" },
	{ "fields", SEND, COUNT(shape.fields, 1, MESSAGE_FIELDS_MAX), .initial = "8", .unit = "N", .key = "fields",
	  .flags = IN_RUN | IN_WORKLOAD, .help = "buffers per message, 1 to 1024" },
	{ "fields", RECV, COUNT(shape.fields, 1, MESSAGE_FIELDS_MAX), .initial = "8", .unit = "N", .key = "fields",
	  .help = "buffers that --receiver recvmsg reads into" },
	{ "header", SEND, SIZE(shape.header_bytes, 1, MESSAGE_BYTES_MAX), .unit = "BYTES", .key = "header_bytes",
	  .flags = IN_RUN | IN_WORKLOAD, NOT_WITH(STRATEGY(relays), "forwards a stream without fields"),
	  .help = "size of the first buffer; the others share the rest; default: all equal" },
	{ "threads", BOTH, COUNT(threads, 1, THREADS_MAX), .initial = "1", .unit = "N", .key = "threads",
	  .flags = IN_RUN | IN_WORKLOAD, .help = "number of connections, 1 to 1024, with a thread each on both sides" },
	{ "mode", SEND, CHOICE(mode, mode_names), .initial = "stream", .key = "mode", .flags = IN_RUN | IN_WORKLOAD,
	  NOT_WITH(STRATEGY(relays), "forwards in one direction only, so no answer comes back"),
	  .help = "rr: the receiver answers each message (request and response), which measures latency" },
	{ "mode", RECV, CHOICE(mode, mode_names), .initial = "stream", .key = "mode", .help = "rr: answer each message" },
	{ "duration", SEND, DURATION(duration_s, DURATION_MAX_S), .unit = "S", .key = "duration_s",
	  .help = "seconds to send; default 10; with --control until `stop`" },
	{ "messages", SEND, COUNT(messages, 1, COUNTER_MAX), .unit = "N", .key = "messages", .flags = IN_RUN | IN_WORKLOAD,
	  .help = "send N messages per thread, instead of sending for a time" },
	{ "receiver", RECV, TYPE_READING, FIELD(reading), .initial = "read", .unit = "NAME", .key = "receiver",
	  .flags = IN_RUN | IN_WORKLOAD,
	  .help = "how the receiver takes the bytes: recv() (read), recvmsg() into fields, MSG_TRUNC without a copy (trunc), "
		  "one thread that waits in poll() for all connections, TCP_ZEROCOPY_RECEIVE (map), io_uring (multishot), or "
		  "splice() to a pipe" },
	{ "touch-received", RECV, FLAG(touch_received), .key = "touch_received", .flags = IN_RUN | IN_WORKLOAD,
	  .help = "the receiver touches every received cache line" },
	{ "coalesce", RECV, COUNT(coalesce_us, 0, COALESCE_MAX_US), .initial = "0", .unit = "US", .key = "coalesce_us",
	  .flags = IN_RUN | IN_WORKLOAD, NEEDS(READING(by_timer), "sleeps in its receive call, not by a timer", "poll"),
	  .help = "with --receiver poll: poll every US microseconds instead of sleeping" },
	{ "buffer", RECV, SIZE(buffer_bytes, 1, MESSAGE_BYTES_MAX), .initial = "128K", .unit = "BYTES", .key = "buffer_bytes",
	  .flags = IN_RUN, .help = "size of the receiver's buffer" },
	{ "sender", SEND, CHOICE(sending, sending_names), .initial = "threads", .key = "sender", .flags = IN_RUN | IN_WORKLOAD,
	  .help = "a sending thread for each connection, or one that sends on all of them in turn (loop)" },
	{ "file", SEND, TEXT(shape.directory, UINT16_MAX), .unit = "DIR", .key = "file", .flags = IN_RUN | IN_WORKLOAD,
	  NEEDS(STRATEGY(in_file), "does not send from a file", NULL),
	  .help = "with sendfile: directory of the file to send, which has no name; default: in memory (memfd)" },
	{ "issue", SEND, CHOICE(issue, issue_names), .initial = "inline", .unit = "WHO", .key = "issue",
	  .flags = IN_RUN | IN_WORKLOAD, NEEDS(STRATEGY(in_ring), "does not send through io_uring", "uring_send"),
	  .help = "with uring_send and uring_zc: the calling thread does the work (inline), an io_uring worker (async), or its "
		  "polling thread (sqpoll)" },
	{ "push", SEND, CHOICE(push, push_names), .initial = "none", .key = "push", .flags = IN_RUN | IN_WORKLOAD,
	  NEEDS(STRATEGY(by_field), "sends a message in one piece", "per_field"),
	  .help = "with per_field: hold data back until the last field by MSG_MORE (more) or TCP_CORK (cork)" },
	{ "batch", SEND, COUNT(batch, 1, BATCH_MAX), .initial = "1", .unit = "N", .key = "batch_sends",
	  .flags = IN_RUN | IN_WORKLOAD, NEEDS(STRATEGY(by_field), "sends a message in one piece", "per_field"),
	  .help = "with per_field: N fields per sendmmsg(), up to 64; 1: a send() for each field" },
	{ "call", SEND, CHOICE(call, vectored_names), .initial = "sendmsg", .key = "call", .flags = IN_RUN | IN_WORKLOAD,
	  NEEDS(STRATEGY(vectored), "does not send all fields by one system call", "one_copy"),
	  .help = "with one_copy: the system call that takes all fields" },
	{ "via", SEND, CHOICE(via, via_names), .initial = "sendfile", .key = "via", .flags = IN_RUN | IN_WORKLOAD,
	  NEEDS(STRATEGY(in_file), "does not send from a file", "sendfile"),
	  .help = "with sendfile: by sendfile(), or by splice() through a pipe" },
	{ "wait", SEND, CHOICE(wait, notices_names), .initial = "batch", .key = "wait", .flags = IN_RUN | IN_WORKLOAD,
	  NEEDS(STRATEGY(reap), "gets no notifications", "zero_copy"),
	  .help = "with zero_copy and uring_zc: read the kernel's notifications after a quarter of the ring (batch), "
		  "after each message, or (zero_copy only) at the end (never)" },
	{ "registered", SEND, FLAG(registered), .key = "registered", .flags = IN_RUN | IN_WORKLOAD,
	  NEEDS(STRATEGY(registers), "cannot use registered buffers: the kernel accepts them for SEND_ZC only", "uring_zc"),
	  .help = "with uring_zc: send from registered buffers" },
	{ "align", SEND, CHOICE(shape.align, alignment_names), .initial = "heap", .key = "align", .flags = IN_RUN | IN_WORKLOAD,
	  NOT_WITH(STRATEGY(relays), "has no fields"), .help = "a field starts where the allocator puts it (heap), or on a page" },
	{ "pages", SEND, CHOICE(shape.pages, page_kind_names), .initial = "4k", .key = "pages", .flags = IN_RUN | IN_WORKLOAD,
	  NOT_WITH(STRATEGY(relays), "has no messages in memory"), .help = "pages of the fields' memory" },
	{ "working-set", SEND, COUNT(shape.slots, 1, WORKING_SET_MAX), .unit = "N", .key = "working_set_messages",
	  .flags = IN_RUN | IN_WORKLOAD, .help = "messages in memory, sent in turn; default: 1 MiB worth, 4 to 1024" },
	{ "working-set", RECV, COUNT(shape.slots, 1, WORKING_SET_MAX), .unit = "N", .key = "working_set_messages",
	  .help = "with --verify: the sender's --working-set; same default" },
	{ "touch", SEND, FLAG(touch), .key = "touch", .flags = IN_RUN | IN_WORKLOAD,
	  NOT_WITH(STRATEGY(relays), "cannot rewrite messages: a relay forwards the bytes that it receives"),
	  .help = "the sender rewrites each message before sending it" },
	{ "touch", RECV, FLAG(touch), .key = "touch", .help = "with --verify: the sender was given --touch" },
	{ "verify", BOTH, FLAG(verify), .key = "verify", .flags = IN_RUN | IN_WORKLOAD,
	  .help = "the sender sends a pattern, and the receiver checks every byte of it" },
	{ "time-every", SEND, COUNT(time_every, 1, 1u << 30), .unit = "N", .key = "time_every", .flags = IN_RUN | IN_WORKLOAD,
	  .help = "time one message in N; default 16, with --messages 1" },

	{ "listen", SEND, TEXT(socket.address, UINT8_MAX), .initial = "127.0.0.1", .unit = "ADDR", .key = "address",
	  .help = "address to listen on" },
	{ "connect", RECV, TEXT(socket.address, UINT8_MAX), .initial = "127.0.0.1", .unit = "ADDR", .key = "address",
	  .help = "address of the sender" },
	{ "port", SEND, COUNT(socket.port, 0, UINT16_MAX), .initial = "0", .unit = "P", .key = "port",
	  .help = "port to listen on; 0: any free one" },
	{ "port", RECV, COUNT(socket.port, 1, UINT16_MAX), .unit = "P", .key = "port", .help = "port of the sender" },
	{ "nodelay", BOTH, CHOICE(socket.nodelay, switch_names), .initial = "on", .key = "nodelay",
	  .flags = IN_RUN | IN_WORKLOAD, .help = "TCP_NODELAY" },
	/* Not IN_RUN: copyscope run sets the congestion control on the route. */
	{ "congestion", BOTH, TEXT(socket.congestion, CONGESTION_NAME_BYTES - 1), .unit = "NAME",
	  .key = "congestion_control", .flags = IN_WORKLOAD,
	  .help = "congestion control; default cubic where it may be used, else the host's" },
	{ "tls", SEND, CHOICE(tls, tls_names), .initial = "off", .key = "tls", .flags = IN_RUN | IN_WORKLOAD,
	  NOT_WITH(STRATEGY(relays), "cannot be combined with TLS: its upstream connection is plain text"),
	  .help = "the kernel encrypts (kTLS, AES-GCM-128) with a fixed key, without a handshake" },
	{ "tls", RECV, CHOICE(tls, tls_names), .initial = "off", .key = "tls", .help = "the kernel decrypts: the sender's --tls" },
	{ "sndbuf", SEND, SIZE(socket.sndbuf_bytes, SOCKET_BUFFER_MIN, INT32_MAX), .unit = "BYTES", .key = "sndbuf_bytes",
	  .flags = IN_RUN | IN_WORKLOAD, .help = "SO_SNDBUF; default: the kernel's autotuning" },
	{ "rcvbuf", RECV, SIZE(socket.rcvbuf_bytes, SOCKET_BUFFER_MIN, INT32_MAX), .unit = "BYTES", .key = "rcvbuf_bytes",
	  .flags = IN_RUN | IN_WORKLOAD, .help = "SO_RCVBUF; default: the kernel's autotuning" },

	{ "rewrite", SEND, CHOICE(rewrite, rewrite_names), .initial = "off", .unit = "WHEN",
	  .help = "with --messages: overwrite the last message when its send has returned (returned), or when the receiver's "
		  "kernel has acknowledged it (arrived), although our kernel may still refer to it" },
	{ "rewrite", RECV, FLAG(rewrite),
	  .help = "with --control and the sender's --rewrite: read nothing before `settle`, then count old and new bytes of the "
		  "last message" },
	{ "cpus", BOTH, TYPE_LIST, FIELD(placement), .unit = "LIST", .key = "cpus",
	  .help = "pin thread i to the i-th CPU of LIST, such as 0,2-3" },
	{ "seed", SEND, COUNT(seed, 0, INT64_MAX), .initial = "0", .unit = "N", .key = "seed",
	  .help = "start of the random choice of timed messages (--time-every)" },
	{ "simulated", SEND, COUNT(warm_messages, 0, COUNTER_MAX), .unit = "WARM",
	  NOT_WITH(STRATEGY(relays), "cannot be simulated: the simulator would also count the process that feeds it"),
	  .help = "in a simulated machine: first send WARM messages that the simulator does not count" },
	{ "answered", SEND, FLAG(answered),
	  .help = "with --simulated: wait for an answer of the receiver (--answer) after the warm-up, and at the end" },
	{ "answer", RECV, COUNT(answer_bytes[0], 1, INT64_MAX), .unit = "BYTES", .flags = TWICE,
	  .help = "send one byte to the sender when BYTES have arrived; may be given twice" },
	{ "check", BOTH, FLAG(check), .help = "check the options, print the resolved values as JSON, and exit" },
	{ "control", BOTH, FLAG(control), .key = "control", .help = "read commands from stdin, answer on stdout" },
	{ NULL },
};

/* OPTION_ROWS_MAX includes a row for --help. */
_Static_assert(sizeof(option_rows) / sizeof(*option_rows) < OPTION_ROWS_MAX, "with a closing row");

unsigned int option_row__choices(const struct option_row *row, const char *names[CHOICES_MAX])
{
	unsigned int count = 0;

	if (row->type == TYPE_READING)
		return reading__names(names);
	if (row->type == TYPE_STRATEGY)
		for (; strategy_names[count]; count++)
			names[count] = strategy_names[count];
	if (row->type == TYPE_CHOICE)
		for (; count < row->most; count++)
			names[count] = row->choices[count];
	return count;
}

uint64_t option_row__load(const struct option_row *row, const struct options *options)
{
	const void *field = (const char *)options + row->offset;

	switch (row->bytes) {
	case 1:
		return *(const uint8_t *)field;
	case 2:
		return *(const uint16_t *)field;
	case 4:
		return *(const uint32_t *)field;
	default:
		return *(const uint64_t *)field;
	}
}

void option_row__store(const struct option_row *row, struct options *options, uint64_t value)
{
	void *field = (char *)options + row->offset;

	if (row->flags & TWICE && option_row__load(row, options))
		field = (char *)field + row->bytes;
	switch (row->bytes) {
	case 1:
		*(uint8_t *)field = value;
		break;
	case 2:
		*(uint16_t *)field = value;
		break;
	case 4:
		*(uint32_t *)field = value;
		break;
	default:
		*(uint64_t *)field = value;
	}
}

static const char *const docs[ROLE_CNT] = {
	[ROLE_SEND] =
		"Listen, and send messages to each receiver that connects.\v"
		"Sizes take K, M or G (powers of 1024). The report is one JSON object on stdout. Exit status: "
		"0 success, also after Ctrl-C if bytes were sent (the report has \"interrupted\": true); "
		"1 failure during the run; 2 invalid options.\n\n"
		"Examples:\n"
		"  traffic send --impl one_copy --size 64K --port 7000 --duration 3\n"
		"  traffic send --impl zero_copy --size 1M --pages thp --threads 2 --cpus 0,1\n"
		"  traffic send --impl two_copy --size 4K --messages 23 --verify --touch\n\n"
		"Commands of --control, one per line on stdin: go, pause, resume, stop. The end of stdin ends the "
		"program.",
	[ROLE_RECV] =
		"Connect to a sender, and read everything that it sends.\v"
		"Sizes take K, M or G (powers of 1024). The report is one JSON object on stdout. Exit status: "
		"0 success, also after Ctrl-C if bytes were received (the report has \"interrupted\": true); "
		"1 failure during the run; 2 invalid options.\n\n"
		"Examples:\n"
		"  traffic recv --port 7000\n"
		"  traffic recv --port 7000 --receiver trunc --threads 2 --cpus 2,3\n"
		"  traffic recv --port 7000 --size 4K --verify --touch\n\n"
		"Commands of --control, one per line on stdin: settle BYTES, stop. The end of stdin ends the program.",
};

const char *option_table__doc(enum role role)
{
	return docs[role];
}

/* Return the names of a choice, such as `stream|rr`. The help shows them in place of a unit. */
static const char *join_choices(const struct option_row *row)
{
	static char joined[OPTION_ROWS_MAX][96];
	char *text = joined[row - option_rows];
	const char *names[CHOICES_MAX];
	unsigned int count = option_row__choices(row, names);
	size_t length = 0;

	for (unsigned int i = 0; i < count && length < sizeof(*joined); i++)
		length += snprintf(text + length, sizeof(*joined) - length, "%s%s", i ? "|" : "", names[i]);
	return text;
}

void option_table__select(enum role role, struct argp_option rows[OPTION_ROWS_MAX])
{
	unsigned int count = 0;

	for (const struct option_row *row = option_rows; row->name; row++) {
		int index = row - option_rows;

		if (!(row->roles & 1u << role))
			continue;
		rows[count++] = (struct argp_option){
			.name = row->name, .key = KEY_FIRST_ROW + index, .doc = row->help,
			.arg = row->type == TYPE_FLAG ? NULL : row->unit ?: join_choices(row),
			/* argp sorts the options of a group by name, so each row is a group and the table's order is kept. */
			.group = index + 1,
		};
	}
	rows[count++] = (struct argp_option){ .name = "help", .key = KEY_HELP, .doc = "print this list", .group = -1 };
	rows[count] = (struct argp_option){ 0 };
}

char *option_table__help(int key, const char *text, void *input __attribute__((unused)))
{
	const char *initial = key < KEY_FIRST_ROW || key >= KEY_FIRST_ROW + OPTION_ROWS_MAX ? NULL
		: option_rows[key - KEY_FIRST_ROW].initial;
	char *with_default;

	if (!initial || asprintf(&with_default, "%s; default %s", text, initial) < 0)
		return (char *)text;
	return with_default;
}

static bool is_long(const char *argument, size_t length)
{
	return length > 2 && argument[1] == '-';
}

int option_table__check_names(const struct argp_option *rows, int argc, char **argv,
			      struct failure *failure)
{
	for (int i = 1; i < argc; i++) {
		const char *name = argv[i] + 2;
		size_t length = strcspn(argv[i], "=");
		const struct argp_option *match = NULL;
		unsigned int matches = 0;

		if (argv[i][0] != '-' || !argv[i][1] || !strcmp(argv[i], "-h"))
			continue;
		for (const struct argp_option *row = rows; is_long(argv[i], length) && row->name; row++) {
			if (strncmp(row->name, name, length - 2))
				continue;
			match = row;
			matches++;
			if (strlen(row->name) == length - 2) {
				matches = 1;
				break;
			}
		}
		if (matches != 1)
			return failure__set(failure, -EINVAL, "%.*s: %s; see --help", (int)length, argv[i],
					    matches ? "abbreviation of several options" : "unknown option");
		/* The next argument is the value of this option, even if it begins with a dash. */
		if (match && match->arg && !argv[i][length])
			i++;
	}
	return 0;
}
