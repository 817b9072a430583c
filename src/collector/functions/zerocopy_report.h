/* SPDX-License-Identifier: GPL-2.0 */
/* zerocopy_report.h - what the hooks on zero-copy's life counted. */
#ifndef COLLECTOR_ZEROCOPY_REPORT_H
#define COLLECTOR_ZEROCOPY_REPORT_H

#include <jansson.h>

struct copyscope;

/*
 * Adds to the record's functions{}: "owners": [{owner_side, current_side, context, calls, bytes}],
 * "completions": [{side, copied, zerocopied}], "completion_latency": [{side, count, before_return, histogram}].
 */
void zerocopy_report__add(const struct copyscope *skel, json_t *functions);

#endif
