/* SPDX-License-Identifier: GPL-2.0 */
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
	bool asked_to_stop;
	bool interrupted;
	struct tls_begun tls_before;
	json_t *errors;
};

/* `traffic recv`: the exit status. */
int receiver__run(const struct options *options);

void receiver__add_totals(const struct receiver *receiver, json_t *totals);
/* Only when all threads are joined. */
json_t *receiver__report(struct receiver *receiver);

#endif
