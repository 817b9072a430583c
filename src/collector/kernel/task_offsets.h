/* SPDX-License-Identifier: GPL-2.0-only */
/* task_offsets.h - offsets of fields of struct task_struct, for BPF programs without CO-RE relocations. */
#ifndef COLLECTOR_TASK_OFFSETS_H
#define COLLECTOR_TASK_OFFSETS_H

#include <stdint.h>

#include "abi.h"

/* Read the offsets from the kernel's BTF. Without BTF they stay as they are, and no hook is loaded anyway. */
void task_offsets__read(uint32_t offsets[TASK_FIELDS]);

#endif
