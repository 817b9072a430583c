/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TRAFFIC_FAILURE_H
#define TRAFFIC_FAILURE_H

#include <stdbool.h>

/* Message about a failure: one line `action or option: reason; next step`. Empty if nothing has failed. */
struct failure {
	char text[320];
};

/* Store a message, unless a message is stored already: later failures follow from the first failure. Return `err`. */
__attribute__((format(printf, 3, 4)))
int failure__set(struct failure *failure, int err, const char *format, ...);

static inline bool failure__happened(const struct failure *failure)
{
	return failure->text[0] != '\0';
}

#endif
