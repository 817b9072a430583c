/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef GUEST_SYMBOLS_H
#define GUEST_SYMBOLS_H

/* Write the functions of a program, from a file in the format of /proc/kallsyms. */
void symbols__write_file(const char *path);
/* Write all functions of this kernel, as in /proc/kallsyms. */
void symbols__write_kernel(void);
/*
 * Write the functions of a loaded module. Each line of /modules/NAME.symbols is `SECTION OFFSET NAME`; the addresses
 * of the sections come from the kernel (sysfs).
 */
void symbols__write_module(const char *module);

#endif
