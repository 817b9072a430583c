/* SPDX-License-Identifier: GPL-2.0 */
#ifndef SIMULATOR_SYMBOLS_H
#define SIMULATOR_SYMBOLS_H

#include <stddef.h>
#include <stdint.h>

enum symbol_flag {
	SYMBOL_SYSCALL_ENTRY = 1,
	SYMBOL_INTERRUPT_ENTRY = 2,
	SYMBOL_INTERRUPT_STUB = 4,	/* anywhere in it */
	SYMBOL_SWITCH = 8,
	SYMBOL_DEVICE_DONE = 16,	/* (device, address, bytes, direction): what it has written may be read now */
	SYMBOL_SENDS = 32,		/* hands bytes to a socket */
	SYMBOL_NMI = 64,
};

struct symbol {
	uint64_t address;
	unsigned int flags;	/* of all names that this address has */
};

/* Where functions begin, in the order of their addresses. */
struct symbols {
	struct symbol *list;
	size_t count, room;
};

/* Add the functions of a file in the format of /proc/kallsyms: 0 or -errno. */
int symbols__read(struct symbols *symbols, const char *path);
/* After the last file. 0, or -ENOENT: what the stacks need is not there; *missing is its name. */
int symbols__finish(struct symbols *symbols, const char **missing);
/* The function that an address lies in: the last one that begins at or below it. NULL: none does. */
const struct symbol *symbols__find(const struct symbols *symbols, uint64_t address);
void symbols__close(struct symbols *symbols);

#endif
