/* SPDX-License-Identifier: GPL-2.0 */
/* prototype.h - what BTF knows of a function's arguments: how many there are, and whether they are those that programs read. */
#ifndef COLLECTOR_PROTOTYPE_H
#define COLLECTOR_PROTOTYPE_H

#include <stdbool.h>
#include <stddef.h>

struct btf;

/* The number of arguments; negative when BTF does not have the function. */
int prototype__arguments(const struct btf *btf, const char *function);
/*
 * `arguments` as they are in bpf/hooks.h: "name" of an integer, "*name" of a pointer, "_" for one that is not read. False, with
 * the reason, where they are others. What BTF does not know fits.
 */
bool prototype__fits(const struct btf *btf, const char *function, const char *arguments, char *reason, size_t size);

#endif
