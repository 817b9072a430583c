/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TRAFFIC_SENDER_H
#define TRAFFIC_SENDER_H

#include "control.h"
#include "sender_thread.h"

enum sender_phase {
	SENDER_ACCEPTING,	/* connections are missing */
	SENDER_PREPARING,	/* threads fill their messages */
	SENDER_READY,		/* parked, nothing sent yet */
	SENDER_GOING,
	SENDER_PAUSING,		/* told to rest, some do not yet */
	SENDER_PAUSED,
	SENDER_STOPPING,
	SENDER_DONE,
};

struct sender {
	struct options options;
	struct control control;
	struct gate gate;
	struct together together;
	struct sender_thread *threads;
	unsigned int started;
	int listener;
	enum sender_phase phase;
	enum sender_phase paused_from;	/* READY, GOING or PAUSED */
	bool interrupted;
	bool finished;			/* every message is sent and drained */
	bool cut_off;
	uint64_t deadline_ns;		/* of this phase; 0: none */
	uint64_t went_ns;		/* since when it is sending; 0: it is not */
	uint64_t sending_ns;		/* in earlier segments, until all had come to rest */
	struct tls_begun tls_before;
	int64_t huge_bytes;		/* of messages on huge pages; -1: unknown */
	json_t *errors;
};

/* `traffic send`: the exit status. */
int sender__run(const struct options *options);

/* What the commands do, and a run without a master does by itself. */
void sender__start_sending(struct sender *sender);
void sender__end_segment(struct sender *sender);
void sender__stop(struct sender *sender);
/* Run the commands that have arrived. */
void sender__obey(struct sender *sender);

/* Only while all threads are parked or joined. */
void sender__add_totals(const struct sender *sender, json_t *totals);
json_t *sender__report(struct sender *sender);

#endif
