/* SPDX-License-Identifier: GPL-2.0 */
/* readings.h - commands that only read: what was counted so far. */
#ifndef COLLECTOR_READINGS_H
#define COLLECTOR_READINGS_H

#include <jansson.h>

struct collector;

/* What the watched program moved so far, and when that was read. */
json_t *readings__volume_json(struct collector *collector);

int readings__volume(struct collector *collector, const char *arguments);
int readings__sockets(struct collector *collector, const char *arguments);
int readings__samples(struct collector *collector, const char *arguments);
int readings__functions(struct collector *collector, const char *arguments);
int readings__report(struct collector *collector, const char *arguments);

#endif
