/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TRAFFIC_RECEIVER_H
#define TRAFFIC_RECEIVER_H

#include "control.h"
#include "receiver_thread.h"

struct receiver {
	struct options options;
	struct control control;
	struct receiver_thread *threads;
	unsigned int started;
	int event_fd;
	atomic_bool stopping;
	struct gate gate;		/* with --rewrite, threads wait here until `settle` opens it */
	bool asked_to_stop;
	bool interrupted;
	struct tls_begun tls_before;
	json_t *errors;
};

/* Run `traffic recv`, and return its exit status. */
int receiver__run(const struct options *options);

/* Add the sums over all connections to a JSON object. */
void receiver__add_totals(const struct receiver *receiver, json_t *totals);
/* Return the report. All threads must have been joined. */
json_t *receiver__report(struct receiver *receiver);

#endif
