/* SPDX-License-Identifier: GPL-2.0 */
/* function_cells.h - what the function programs counted, as JSON. */
#ifndef COLLECTOR_FUNCTION_CELLS_H
#define COLLECTOR_FUNCTION_CELLS_H

#include <jansson.h>

struct copyscope;
struct counters;

/* functions.cells[] and functions.roots[] of the report; times and counters are those of the timed calls. */
json_t *function_cells__json(const struct copyscope *skel, const struct counters *counters, int cpus);
json_t *function_cells__roots_json(const struct copyscope *skel, const struct counters *counters, int cpus);

#endif
