/* SPDX-License-Identifier: GPL-2.0-only */
/* names.h - names that the record uses for the enums of abi.h. */
#ifndef COLLECTOR_NAMES_H
#define COLLECTOR_NAMES_H

#include <stdbool.h>

#include "abi.h"

/* A watched program is the first side, which names__watch() renames to "target". */
extern const char *side_names[SIDE_TARGETS + 1];
void names__watch(void);
extern const char *const call_names[CALL_CNT];
extern const char *const sample_names[SAMPLE_CNT];
/* NULL: the owner is unknown. */
extern const char *const owner_names[OWNER_CNT];
extern const char *const byte_hook_names[BYTES_CNT];
extern const char *const loss_names[LOSS_CNT];
extern const char *const direction_names[DIRECTION_CNT];
extern const char *const protocol_names[PROTOCOL_CNT];
extern const char *const watch_total_names[WATCH_TOTAL_CNT];
extern const char *const category_names[CATEGORY_CNT];
/* Fill the tables of calls.bpf.c. In a watched program, more calls are followed than in our own traffic. */
void names__fill_calls(volatile __u8 call_of_nr[NUMBER_TABLES][SYSCALLS_MAX], bool watching);

#endif
