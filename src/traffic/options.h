/* SPDX-License-Identifier: GPL-2.0 */
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

extern const char *const role_names[ROLE_CNT];
extern const char *const mode_names[MODE_CNT];
extern const char *const sending_names[SENDING_CNT];

#define THREADS_MAX 1024
#define EXIT_USAGE 2
/* --check: the options make sense, but not on this machine, or not with its limits. */
#define EXIT_CANNOT 3

struct options {
	enum role role;
	const struct strategy *strategy;
	struct message_shape shape;	/* size_bytes 0 (receiver only): unknown */
	unsigned int threads;
	double duration_s;		/* 0: by messages, or until told to stop */
	uint64_t messages;		/* per thread; 0: by duration */
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
	uint64_t coalesce_us;		/* how long a polling receiver sleeps; 0: until it is woken */
	uint64_t buffer_bytes;
	bool touch;
	bool touch_received;
	bool verify;
	bool control;
	bool check;
	bool simulated;			/* a simulator counts all but the first warm_messages */
	uint64_t warm_messages;
	bool answered;			/* after the first warm_messages, and after all */
	uint64_t answer_bytes[2];	/* the receiver's part of it; 0: none */
	unsigned int time_every;
	uint64_t seed;
	struct socket_options socket;
	struct placement placement;
};

/*
 * Parse and check one subcommand's arguments. Wrong ones end the program with status 2 and one line
 * on stderr; so does --help, with status 0.
 */
void options__parse(struct options *options, enum role role, int argc, char **argv);
/* Everything as it was resolved, with the keys of a record's workload. */
json_t *options__json(const struct options *options);

#endif
