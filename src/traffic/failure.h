/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TRAFFIC_FAILURE_H
#define TRAFFIC_FAILURE_H

#include <stdbool.h>

/* Why something failed, as one line `what: object: reason: next step`. Empty while all is well. */
struct failure {
	char text[320];
};

/* Keep the first cause (later ones are its consequences) and hand back `err`. */
__attribute__((format(printf, 3, 4)))
int failure__set(struct failure *failure, int err, const char *format, ...);

static inline bool failure__happened(const struct failure *failure)
{
	return failure->text[0] != '\0';
}

#endif
