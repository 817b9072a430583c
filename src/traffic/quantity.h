/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TRAFFIC_QUANTITY_H
#define TRAFFIC_QUANTITY_H

#include <stdint.h>

#include "failure.h"

/* What users write on a command line. Each returns 0 or -EINVAL with `<option>: <text>: reason`. */

/* Bytes: 1500, 64K, 64KiB, 2M, 1G (powers of 1024). */
int quantity__size(const char *option, const char *text, uint64_t min, uint64_t max,
		   uint64_t *bytes, struct failure *failure);
int quantity__count(const char *option, const char *text, uint64_t min, uint64_t max,
		    uint64_t *count, struct failure *failure);
int quantity__seconds(const char *option, const char *text, double max, double *seconds,
		      struct failure *failure);
int quantity__switch(const char *option, const char *text, bool *on, struct failure *failure);
/* One of `count` names; `*index` is its place. */
int quantity__choice(const char *option, const char *text, const char *const *names,
		     unsigned int count, unsigned int *index, struct failure *failure);

#endif
