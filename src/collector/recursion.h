/* SPDX-License-Identifier: GPL-2.0 */
/* recursion.h - how often the kernel did not call a program because it ran on this CPU already. */
#ifndef COLLECTOR_RECURSION_H
#define COLLECTOR_RECURSION_H

#include <jansson.h>

struct bpf_program;

/* Runs of a program that the kernel skipped; 5.10 has no such count, and skips none (but see METHOD.md). */
json_int_t recursion__skipped(const struct bpf_program *program);
/* Sets loss["recursion_<id>"]; nothing for a program that is not loaded. */
void recursion__add(json_t *loss, const char *id, const struct bpf_program *program);

#endif
