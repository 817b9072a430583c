/* SPDX-License-Identifier: GPL-2.0 */
#ifndef GUEST_SYMBOLS_H
#define GUEST_SYMBOLS_H

/* The functions of a program: a file that has them as /proc/kallsyms would. */
void symbols__write_file(const char *path);
/* Every function of this kernel, as /proc/kallsyms has it. */
void symbols__write_kernel(void);
/*
 * The functions of a module that is loaded: /modules/NAME.symbols has `SECTION OFFSET NAME` a line, and the kernel
 * says where it put each section.
 */
void symbols__write_module(const char *module);

#endif
