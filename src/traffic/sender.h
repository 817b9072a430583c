/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TRAFFIC_SENDER_H
#define TRAFFIC_SENDER_H

#include "control.h"
#include "sender_thread.h"

enum sender_phase {
	SENDER_ACCEPTING,	/* waiting for connections */
	SENDER_PREPARING,	/* threads allocate and fill their messages */
	SENDER_READY,		/* all threads are parked, and nothing has been sent */
	SENDER_GOING,
	SENDER_PAUSING,		/* the gate is closed, but some threads have not parked */
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
	enum sender_phase paused_from;	/* phase before SENDER_PAUSING: READY, GOING or PAUSED */
	bool interrupted;
	bool finished;			/* all messages are sent and acknowledged */
	bool cut_off;			/* the connections were shut down, because the receiver did not read */
	uint64_t deadline_ns;		/* time at which this phase ends; 0: no such time */
	uint64_t went_ns;		/* start of the current segment; 0: paused */
	uint64_t sending_ns;		/* total length of the earlier segments; a segment ends when all threads have parked */
	struct tls_begun tls_before;
	int64_t huge_bytes;		/* memory of this process on huge pages; -1: unknown */
	json_t *errors;
};

/* Run `traffic send`, and return its exit status. */
int sender__run(const struct options *options);

/* Actions of the commands. Without --control, the sender calls these functions by itself. */
void sender__start_sending(struct sender *sender);
void sender__end_segment(struct sender *sender);
void sender__stop(struct sender *sender);
/* Run the commands that have arrived. */
void sender__dispatch_commands(struct sender *sender);

/* Call these functions only while all threads are parked or joined. */
void sender__add_totals(const struct sender *sender, json_t *totals);
json_t *sender__report(struct sender *sender);

#endif
