/* SPDX-License-Identifier: GPL-2.0 */
/*
 * ksyms_programs.h - where BPF programs end.
 *
 * /proc/kallsyms has no lengths. Behind a program may lie a trampoline of fentry, made after the symbols were read: a function that
 * is hooked at its exit is called from there, so its address is in every stack of that function.
 */
#ifndef COLLECTOR_KSYMS_PROGRAMS_H
#define COLLECTOR_KSYMS_PROGRAMS_H

struct ksyms;

/* Bounds the symbols of all loaded programs. Returns 0 or -errno; those that were not reached stay as they are. */
int ksyms__bound_programs(struct ksyms *ksyms);

#endif
