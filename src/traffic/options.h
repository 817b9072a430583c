/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TRAFFIC_OPTIONS_H
#define TRAFFIC_OPTIONS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "failure.h"
#include "message.h"
#include "placement.h"
#include "reading.h"
#include "socket.h"
#include "strategy.h"
#include "tls.h"

enum role { ROLE_SEND, ROLE_RECV, ROLE_CNT };
enum mode { MODE_STREAM, MODE_RR, MODE_CNT };
enum sending { SENDING_THREADS, SENDING_LOOP, SENDING_CNT };
/*
 * Time at which --rewrite overwrites the last message: after its send call has returned, or once the receiver's kernel has
 * acknowledged the whole message. The rewrite ignores message.pending, so that the receiver can detect whether the sender's
 * kernel still refers to the memory.
 */
enum rewrite { REWRITE_OFF, REWRITE_RETURNED, REWRITE_ARRIVED, REWRITE_CNT };
/* Content of the last message before and after --rewrite overwrites it. All other messages hold capital letters. */
#define REWRITE_OLD 'o'
#define REWRITE_NEW 'n'

extern const char *const role_names[ROLE_CNT];
extern const char *const mode_names[MODE_CNT];
extern const char *const sending_names[SENDING_CNT];
extern const char *const rewrite_names[REWRITE_CNT];

#define THREADS_MAX 1024
#define EXIT_USAGE 2
/* Exit status of --check for valid options that this machine or its limits do not allow. */
#define EXIT_CANNOT 3

struct options {
	enum role role;
	const struct strategy *strategy;
	struct message_shape shape;	/* size_bytes is 0 if the size is unknown (receiver only) */
	unsigned int threads;
	double duration_s;		/* length of the run; 0: it ends after `messages`, or at `stop` */
	uint64_t messages;		/* messages to send per thread; 0: unlimited */
	enum mode mode;
	enum sending sending;
	const struct reading *reading;
	enum issue issue;
	enum push push;
	enum tls tls;
	enum vectored call;
	enum via via;
	enum notices wait;
	unsigned int batch;
	uint64_t coalesce_us;		/* sleep of a polling receiver between two polls; 0: sleep until data arrive */
	uint64_t buffer_bytes;
	bool touch;
	bool touch_received;
	bool registered;
	bool verify;
	enum rewrite rewrite;		/* receiver: REWRITE_OFF unless the sender rewrites its last message */
	bool control;
	bool check;
	bool simulated;			/* the program runs in a simulator, which does not count the first warm_messages */
	uint64_t warm_messages;
	bool answered;			/* sender: wait for an answer after the warm-up and at the end */
	uint64_t answer_bytes[2];	/* receiver: totals of received bytes at which an answer is sent; 0: no answer */
	unsigned int time_every;
	uint64_t seed;
	struct socket_options socket;
	struct placement placement;
};

/*
 * Parse and check the arguments of one subcommand. Invalid arguments end the program with status 2 and one line on
 * stderr; --help ends it with status 0.
 */
void options__parse(struct options *options, enum role role, int argc, char **argv);
/* Return the resolved values, with the keys of a record's `workload`. */
json_t *options__json(const struct options *options);

#endif
