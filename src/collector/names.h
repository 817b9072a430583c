/* SPDX-License-Identifier: GPL-2.0 */
/* names.h - the words that the record uses for the enums of abi.h. */
#ifndef COLLECTOR_NAMES_H
#define COLLECTOR_NAMES_H

#include "abi.h"

extern const char *const side_names[SIDE_TARGETS + 1];
extern const char *const call_names[CALL_CNT];
extern const char *const sample_names[SAMPLE_CNT];
extern const char *const sample_units[SAMPLE_CNT];
extern const char *const byte_hook_names[BYTES_CNT];
extern const char *const loss_names[LOSS_CNT];
extern const char *const category_names[CATEGORY_CNT];
/* Syscall numbers of the architecture that this is compiled for; -1 where it has no such syscall. */
extern const int call_numbers[CALL_CNT];

#endif
