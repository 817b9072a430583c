// SPDX-License-Identifier: GPL-2.0
#include <errno.h>
#include <string.h>

#include "option_table.h"

#define SEND (1u << ROLE_SEND)
#define RECV (1u << ROLE_RECV)
#define BOTH (SEND | RECV)

static const struct {
	unsigned int roles;
	struct argp_option row;
} table[] = {
	{ SEND, { "impl", OPT_IMPL, "NAME", 0, "strategy: see `traffic list`", 1 } },
	{ BOTH, { "size", OPT_SIZE, "BYTES", 0, "message size, up to 1G (sender: 64K)", 1 } },
	{ SEND, { "fields", OPT_FIELDS, "N", 0, "buffers a message is made of (8), 1 to 1024", 1 } },
	{ SEND, { "header", OPT_HEADER, "BYTES", 0, "size of the first buffer, the others share the rest (default: all equal)", 1 } },
	{ RECV, { "fields", OPT_FIELDS, "N", 0, "buffers that --receiver recvmsg reads into (8)", 1 } },
	{ BOTH, { "threads", OPT_THREADS, "N", 0, "connections, one thread each by default (1), up to 1024", 1 } },
	{ BOTH, { "mode", OPT_MODE, "stream|rr", 0,
		  "stream (default), or rr: the receiver answers each message", 1 } },
	{ SEND, { "duration", OPT_DURATION, "S", 0,
		  "seconds to send (10; with --control the master decides)", 1 } },
	{ SEND, { "messages", OPT_MESSAGES, "N", 0, "messages to send per thread", 1 } },

	{ SEND, { "listen", OPT_ADDRESS, "ADDR", 0, "address to listen on (127.0.0.1)", 2 } },
	{ RECV, { "connect", OPT_ADDRESS, "ADDR", 0, "address of the sender (127.0.0.1)", 2 } },
	{ SEND, { "port", OPT_PORT, "P", 0, "port to listen on (0: any free one)", 2 } },
	{ RECV, { "port", OPT_PORT, "P", 0, "port of the sender", 2 } },
	{ BOTH, { "nodelay", OPT_NODELAY, "on|off", 0, "TCP_NODELAY (on)", 2 } },
	{ BOTH, { "congestion", OPT_CONGESTION, "NAME", 0,
		  "congestion control (cubic where it may be used, else the host's)", 2 } },
	{ BOTH, { "tls", OPT_TLS, "off|1.2|1.3", 0,
		  "the kernel encrypts (kTLS, AES-GCM-128) with keys that both ends know, no handshake (off)", 2 } },
	{ SEND, { "sndbuf", OPT_SNDBUF, "BYTES", 0, "SO_SNDBUF (kernel's autotuning)", 2 } },
	{ RECV, { "rcvbuf", OPT_RCVBUF, "BYTES", 0, "SO_RCVBUF (kernel's autotuning)", 2 } },

	{ SEND, { "align", OPT_ALIGN, "heap|page", 0, "where a field starts (heap)", 3 } },
	{ SEND, { "pages", OPT_PAGES, "4k|thp|hugetlb", 0, "pages of the fields' memory (4k)", 3 } },
	{ SEND, { "file", OPT_FILE, "DIR", 0,
		  "directory of the file to send, which is unnamed (default: in memory)", 3 } },
	{ SEND, { "working-set", OPT_WORKING_SET, "N", 0,
		  "messages in memory, sent in turn (1 MiB worth, 4 to 1024)", 3 } },
	{ RECV, { "working-set", OPT_WORKING_SET, "N", 0,
		  "with --verify: the sender's --working-set (same default)", 3 } },
	{ SEND, { "touch", OPT_TOUCH, NULL, 0, "rewrite each message before it is sent", 3 } },
	{ RECV, { "touch", OPT_TOUCH, NULL, 0, "with --verify: the sender was given --touch", 3 } },
	{ SEND, { "verify", OPT_VERIFY, NULL, 0, "send a pattern the receiver can check", 3 } },
	{ RECV, { "verify", OPT_VERIFY, NULL, 0, "check every byte; a wrong one fails the run", 3 } },
	{ SEND, { "sender", OPT_SENDING, "threads|loop", 0,
		  "a thread for each connection (default), or one that sends on all of them in turn", 3 } },
	{ SEND, { "issue", OPT_ISSUE, "inline|async|sqpoll", 0,
		  "who does the work of io_uring: the calling thread (default), a worker, or a polling thread", 3 } },
	{ SEND, { "push", OPT_PUSH, "none|more|cork", 0,
		  "with per_field: hold fields back until the last, by MSG_MORE or TCP_CORK (none)", 3 } },
	{ SEND, { "batch", OPT_BATCH, "N", 0, "with per_field: fields per sendmmsg() (1: one send() each), up to 64", 3 } },
	{ SEND, { "call", OPT_CALL, "sendmsg|writev", 0, "with one_copy: the call that takes all fields (sendmsg)", 3 } },
	{ SEND, { "via", OPT_VIA, "sendfile|splice", 0,
		  "with sendfile: by sendfile() (default), or by splice() through a pipe", 3 } },
	{ SEND, { "wait", OPT_WAIT, "batch|each|never", 0,
		  "with zero_copy and uring_zc: read the kernel's notices a quarter of the ring at a time (default), wait for "
		  "that of each message, or (zero_copy only) never read one while it sends", 3 } },
	{ SEND, { "registered", OPT_REGISTERED, NULL, 0, "with uring_zc: the messages' memory is registered", 3 } },
	{ RECV, { "receiver", OPT_READING, "NAME", 0,
		  "read (recv(), default), recvmsg (into fields), trunc (dropped without a copy), poll (one thread that "
		  "waits in poll() for all connections), map (TCP_ZEROCOPY_RECEIVE), multishot (io_uring) or splice "
		  "(to a pipe)", 3 } },
	{ RECV, { "touch-received", OPT_TOUCH_RECEIVED, NULL, 0, "touch every received cache line", 3 } },
	{ RECV, { "coalesce", OPT_COALESCE, "US", 0,
		  "with --receiver poll: poll every US microseconds instead of sleeping (0)",
		  3 } },
	{ RECV, { "buffer", OPT_BUFFER, "BYTES", 0, "size of the receive buffer (128K)", 3 } },

	{ BOTH, { "cpus", OPT_CPUS, "LIST", 0, "thread i on the i-th of these CPUs: 0,2-3", 4 } },
	{ SEND, { "time-every", OPT_TIME_EVERY, "N", 0,
		  "time one message in N (16; 1 with --messages)", 4 } },
	{ SEND, { "seed", OPT_SEED, "N", 0, "which of the N is timed (0)", 4 } },
	{ SEND, { "simulated", OPT_SIMULATED, "WARM", 0,
		  "send WARM messages first, which the simulator does not count (src/simulator/)", 4 } },
	{ SEND, { "answered", OPT_ANSWERED, NULL, 0,
		  "with --simulated: the receiver reports by --answer when it has read the warm-up, and when all", 4 } },
	{ RECV, { "answer", OPT_ANSWER, "BYTES", 0, "send one byte back when BYTES have arrived; may be given twice", 4 } },
	{ BOTH, { "check", OPT_CHECK, NULL, 0, "check the options, print the resulting values, and exit", 4 } },
	{ BOTH, { "control", OPT_CONTROL, NULL, 0, "read commands from stdin, answer on stdout", 4 } },
	{ BOTH, { "help", OPT_HELP, NULL, 0, "this list", -1 } },
};

_Static_assert(sizeof(table) / sizeof(*table) < OPTION_ROWS_MAX, "with a closing row");

static const char *const docs[ROLE_CNT] = {
	[ROLE_SEND] =
		"Listen, and send messages to each receiver that connects.\v"
		"Sizes take K, M or G (powers of 1024). The report is one JSON object on stdout. Exit status: "
		"0 all went well (also after Ctrl-C, when bytes have flowed: the report then says "
		"\"interrupted\"), 1 the run failed, 2 it was refused before it began.\n\n"
		"Examples:\n"
		"  traffic send --impl one_copy --size 64K --port 7000 --duration 3\n"
		"  traffic send --impl zero_copy --size 1M --pages thp --threads 2 --cpus 0,1\n"
		"  traffic send --impl two_copy --size 4K --messages 23 --verify --touch\n\n"
		"With --control: go, pause, resume and stop, a line each on stdin; end of input ends the "
		"program.",
	[ROLE_RECV] =
		"Connect to a sender and read all it sends.\v"
		"Sizes take K, M or G (powers of 1024). The report is one JSON object on stdout. Exit status: "
		"0 all went well (also after Ctrl-C, when bytes have flowed: the report then says "
		"\"interrupted\"), 1 the run failed, 2 it was refused before it began.\n\n"
		"Examples:\n"
		"  traffic recv --port 7000\n"
		"  traffic recv --port 7000 --receiver trunc --threads 2 --cpus 2,3\n"
		"  traffic recv --port 7000 --size 4K --verify --touch\n\n"
		"With --control: settle BYTES and stop, a line each on stdin; end of input ends the program.",
};

const char *option_table__doc(enum role role)
{
	return docs[role];
}

void option_table__select(enum role role, struct argp_option rows[OPTION_ROWS_MAX])
{
	unsigned int count = 0;

	for (size_t i = 0; i < sizeof(table) / sizeof(*table); i++)
		if (table[i].roles & 1u << role)
			rows[count++] = table[i].row;
	rows[count] = (struct argp_option){ 0 };
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
		const struct argp_option *found = NULL;
		unsigned int matches = 0;

		if (argv[i][0] != '-' || !argv[i][1] || !strcmp(argv[i], "-h"))
			continue;
		for (const struct argp_option *row = rows; is_long(argv[i], length) && row->name; row++) {
			if (strncmp(row->name, name, length - 2))
				continue;
			found = row;
			matches++;
			if (strlen(row->name) == length - 2) {
				matches = 1;
				break;
			}
		}
		if (matches != 1)
			return failure__set(failure, -EINVAL, "option: %.*s: %s: see --help", (int)length,
					    argv[i], matches ? "stands for several" : "unknown");
		/* What follows is its value, whatever it looks like. */
		if (found && found->arg && !argv[i][length])
			i++;
	}
	return 0;
}
