/* SPDX-License-Identifier: GPL-2.0 */
/* ksyms.h - kernel addresses to function names, from /proc/kallsyms. */
#ifndef COLLECTOR_KSYMS_H
#define COLLECTOR_KSYMS_H

#include <stdint.h>

struct ksyms;

/* The symbol id of an address outside every function. */
#define KSYM_UNKNOWN 0

/*
 * Reads the text symbols of /proc/kallsyms. Call it when the modules in question are loaded.
 * Returns 0 or -errno; -EPERM when the kernel hides the addresses (kptr_restrict).
 */
int ksyms__load(struct ksyms **ksyms);
/* The same from a file that is written like it. */
int ksyms__read(struct ksyms **ksyms, const char *path);
/* Number of text symbols. */
uint32_t ksyms__count(const struct ksyms *ksyms);
/*
 * The id of the function that holds the address; KSYM_UNKNOWN if there is none. Of several names of one address always the
 * same: a global one before a weak and a local one, and of these the first by the alphabet.
 */
uint32_t ksyms__find(const struct ksyms *ksyms, uint64_t address);
/* Says how long the function is that begins at this address; what lies behind it, up to the next symbol, is none. */
void ksyms__bound(struct ksyms *ksyms, uint64_t address, uint32_t length);
/* The name of an id ("[unknown]" for KSYM_UNKNOWN); lives as long as ksyms. */
const char *ksyms__name(const struct ksyms *ksyms, uint32_t id);
/*
 * The symbol of a function: its name, or else that of a copy which the compiler made of it for constant or unused
 * arguments (NAME.constprop.0, NAME.isra.0). Parts of it (.part, .cold) are not it. NULL if there is none.
 */
const char *ksyms__find_name(const struct ksyms *ksyms, const char *name);
/* Address and end (the next symbol) of the function that is found by this name; its symbol, or NULL if there is none. */
const char *ksyms__range(const struct ksyms *ksyms, const char *name, uint64_t *address, uint64_t *end);
void ksyms__free(struct ksyms *ksyms);
/*
 * Bounds the symbols of all loaded BPF programs: /proc/kallsyms has no lengths. Behind a program may lie a trampoline of fentry, made
 * after the symbols were read: a function that is hooked at its exit is called from there, so its address is in every stack of that
 * function. Returns 0 or -errno; those that were not reached stay as they are.
 */
int ksyms__bound_programs(struct ksyms *ksyms);

#endif
