/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef SIMULATOR_SYMBOLS_H
#define SIMULATOR_SYMBOLS_H

#include <stddef.h>
#include <stdint.h>

enum symbol_flag {
	SYMBOL_SYSCALL_ENTRY = 1,
	SYMBOL_INTERRUPT_ENTRY = 2,
	SYMBOL_INTERRUPT_STUB = 4,	/* an interrupt may start at any address in this function */
	SYMBOL_SWITCH = 8,
	/* arguments (device, address, bytes, direction): the CPU may now read the data that the device has written */
	SYMBOL_DEVICE_DONE = 16,
	SYMBOL_SENDS = 32,		/* the function passes bytes to a socket */
	SYMBOL_NMI = 64,
};

struct symbol {
	uint64_t address;
	unsigned int flags;	/* set of enum symbol_flag, for all names of this address */
};

/* Start addresses of functions, sorted. */
struct symbols {
	struct symbol *list;
	size_t count, room;
};

/* Add the functions of a file in the format of /proc/kallsyms. Return 0 or -errno. */
int symbols__read(struct symbols *symbols, const char *path);
/*
 * Sort the symbols after the last file. Return 0, or -ENOENT and in *missing the name of a function that the stacks
 * need.
 */
int symbols__finish(struct symbols *symbols, const char **missing);
/* Return the function that contains an address: the last one that starts at or below it. NULL: none. */
const struct symbol *symbols__find(const struct symbols *symbols, uint64_t address);
void symbols__close(struct symbols *symbols);

#endif
