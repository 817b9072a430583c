/* SPDX-License-Identifier: GPL-2.0-only */
/* prototype.h - checks the arguments of a kernel function against BTF. */
#ifndef COLLECTOR_PROTOTYPE_H
#define COLLECTOR_PROTOTYPE_H

#include <stdbool.h>
#include <stddef.h>

struct btf;

/* Return the number of arguments, or a negative number if BTF does not have the function. */
int prototype__arguments(const struct btf *btf, const char *function);
/*
 * Check a prototype. `arguments` is a list as in bpf/hooks.h: "name" for an integer, "*name" for a pointer, "_" for
 * one that is not read. Return false and the reason if the prototype differs. A function that is not in BTF passes.
 */
bool prototype__fits(const struct btf *btf, const char *function, const char *arguments, char *reason, size_t size);

#endif
