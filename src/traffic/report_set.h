/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TRAFFIC_REPORT_SET_H
#define TRAFFIC_REPORT_SET_H

#include <jansson.h>
#include <stdint.h>

static inline void report__set(json_t *object, const char *key, uint64_t value)
{
	json_object_set_new(object, key, json_integer((json_int_t)value));
}

#endif
