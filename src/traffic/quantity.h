/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TRAFFIC_QUANTITY_H
#define TRAFFIC_QUANTITY_H

#include <stdint.h>

#include "failure.h"

/*
 * Parsers for values on the command line. Each returns 0, or -EINVAL with `--option text: reason; next step` in `failure`.
 */

/* Parse a size in bytes: 1500, 64K, 64KiB, 2M, 1G (powers of 1024). */
int quantity__size(const char *option, const char *text, uint64_t min, uint64_t max,
		   uint64_t *bytes, struct failure *failure);
int quantity__count(const char *option, const char *text, uint64_t min, uint64_t max,
		    uint64_t *count, struct failure *failure);
int quantity__seconds(const char *option, const char *text, double max, double *seconds,
		      struct failure *failure);
/* Find `text` among `count` names, and store the index of the name. */
int quantity__choice(const char *option, const char *text, const char *const *names,
		     unsigned int count, unsigned int *index, struct failure *failure);

#endif
