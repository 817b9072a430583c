/* SPDX-License-Identifier: GPL-2.0 */
/* recursion.h - how often the kernel did not call a program: it ran on this CPU already, or a kprobe did not fire. */
#ifndef COLLECTOR_RECURSION_H
#define COLLECTOR_RECURSION_H

#include <jansson.h>

struct attach;
struct bpf_program;

/*
 * Sets loss["recursion_<id>"]: runs of the program that the kernel skipped, or {"count": null, "reason"} where it does not say.
 * Nothing for a program that is not loaded.
 */
void recursion__add(json_t *loss, const char *id, const struct bpf_program *program);
/* The same of both ends of a function, and if they are kprobes loss["missed_<id>"] as far as they have been detached. */
void recursion__add_function(json_t *loss, const char *id, const struct attach *function);

#endif
