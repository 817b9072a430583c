/* SPDX-License-Identifier: GPL-2.0 */
/* function_cells.h - what the function hooks counted. */
#ifndef COLLECTOR_FUNCTION_CELLS_H
#define COLLECTOR_FUNCTION_CELLS_H

#include <jansson.h>

struct copyscope;
struct counters;

/* The object that functions__json() returns (functions.h), without what is counted of zero-copy's life. */
json_t *function_cells__json(const struct copyscope *skel, const struct counters *counters, unsigned int gate);

#endif
