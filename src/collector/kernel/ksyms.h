/* SPDX-License-Identifier: GPL-2.0-only */
/* ksyms.h - maps kernel addresses to function names, from /proc/kallsyms. */
#ifndef COLLECTOR_KSYMS_H
#define COLLECTOR_KSYMS_H

#include <stdint.h>

struct ksyms;

/* Symbol id of an address outside every function. */
#define KSYM_UNKNOWN 0

/*
 * Read the text symbols of /proc/kallsyms, after the modules of interest are loaded. Return 0 or -errno; -EPERM if
 * the kernel hides the addresses (kptr_restrict).
 */
int ksyms__load(struct ksyms **ksyms);
/* Like ksyms__load(), but from a file in the same format. */
int ksyms__read(struct ksyms **ksyms, const char *path);
/* Return the number of text symbols. */
uint32_t ksyms__count(const struct ksyms *ksyms);
/*
 * Return the id of the function that contains the address, or KSYM_UNKNOWN. If an address has several names, the
 * result is always the same: global before weak before local, then alphabetical.
 */
uint32_t ksyms__find(const struct ksyms *ksyms, uint64_t address);
/*
 * Set the length of the function that starts at this address. Addresses after its end, up to the next symbol, are
 * unknown.
 */
void ksyms__bound(struct ksyms *ksyms, uint64_t address, uint32_t length);
/* Return the name of an id ("[unknown]" for KSYM_UNKNOWN). The string lives as long as ksyms. */
const char *ksyms__name(const struct ksyms *ksyms, uint32_t id);
/*
 * Return the symbol of a function: its name, or the name of a clone that the compiler made for constant or unused
 * arguments (NAME.constprop.0, NAME.isra.0). Parts of a function (.part, .cold) do not count. Return NULL without such
 * a symbol.
 */
const char *ksyms__find_name(const struct ksyms *ksyms, const char *name);
/* Like ksyms__find_name(). Also return the function's address and its end, which is the next symbol. */
const char *ksyms__range(const struct ksyms *ksyms, const char *name, uint64_t *address, uint64_t *end);
void ksyms__free(struct ksyms *ksyms);
/*
 * Set the lengths of all loaded BPF programs, because /proc/kallsyms has none. A fentry trampoline that was created
 * later may be located after a program. A function that is hooked at its exit is called from its trampoline, so the
 * trampoline's address is in every stack of that function. Return 0 or -errno; on error some programs have no length.
 */
int ksyms__bound_programs(struct ksyms *ksyms);

#endif
