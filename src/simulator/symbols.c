// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "symbols.h"

/* A name, or with a star a prefix of names. */
static const struct {
	const char *name;
	unsigned int flag;
} functions[] = {
	/* Every kernel has these two. */
	{ "entry_SYSCALL_64", SYMBOL_SYSCALL_ENTRY },
	{ "__switch_to_asm", SYMBOL_SWITCH },
	{ "asm_exc_nmi", SYMBOL_NMI },
	{ "asm_*", SYMBOL_INTERRUPT_ENTRY },
	{ "irq_entries_start", SYMBOL_INTERRUPT_STUB },
	{ "spurious_entries_start", SYMBOL_INTERRUPT_STUB },
	/* dma_unmap_single() and dma_unmap_page() (kernel/dma/mapping.c), and their names from 6.18 on. */
	{ "dma_unmap_page_attrs", SYMBOL_DEVICE_DONE },
	{ "dma_unmap_phys", SYMBOL_DEVICE_DONE },
	{ "tcp_sendmsg", SYMBOL_SENDS },
	/* sendfile() called this before 6.5. */
	{ "tcp_sendpage", SYMBOL_SENDS },
	{ "udp_sendmsg", SYMBOL_SENDS },
	{ "udpv6_sendmsg", SYMBOL_SENDS },
	{ "unix_stream_sendmsg", SYMBOL_SENDS },
	{ "unix_dgram_sendmsg", SYMBOL_SENDS },
};
#define NEEDED 2

static unsigned int flags_of(const char *name)
{
	unsigned int flags = 0;

	for (size_t i = 0; i < sizeof(functions) / sizeof(*functions); i++) {
		const char *wanted = functions[i].name;
		size_t length = strcspn(wanted, "*");

		if (!strncmp(name, wanted, length) && (wanted[length] || !name[length]))
			flags |= functions[i].flag;
	}
	/* Functions such as asm_call_on_stack (5.10) are called like others; they are not interrupt entries. */
	return strncmp(name, "asm_call_", 9) ? flags : flags & ~(unsigned int)SYMBOL_INTERRUPT_ENTRY;
}

static int add(struct symbols *symbols, uint64_t address, unsigned int flags)
{
	if (symbols->count == symbols->room) {
		size_t room = symbols->room ? 2 * symbols->room : 1u << 16;
		struct symbol *list = realloc(symbols->list, room * sizeof(*list));

		if (!list)
			return -ENOMEM;
		symbols->list = list;
		symbols->room = room;
	}
	symbols->list[symbols->count++] = (struct symbol){ address, flags };
	return 0;
}

int symbols__read(struct symbols *symbols, const char *path)
{
	FILE *file = fopen(path, "re");
	char line[1024];
	int err = 0;

	if (!file)
		return -errno;
	while (!err && fgets(line, sizeof(line), file)) {
		char name[512], type;
		uint64_t address;

		if (sscanf(line, "%" SCNx64 " %c %511s", &address, &type, name) == 3 && strchr("tTwW", type))
			err = add(symbols, address, flags_of(name));
	}
	if (!err && ferror(file))
		err = -EIO;
	fclose(file);
	return err;
}

static int by_address(const void *left, const void *right)
{
	const struct symbol *a = left, *b = right;

	return a->address < b->address ? -1 : a->address > b->address;
}

int symbols__finish(struct symbols *symbols, const char **missing)
{
	unsigned int all_flags = 0;
	size_t kept = 0;

	if (symbols->count)
		qsort(symbols->list, symbols->count, sizeof(*symbols->list), by_address);
	for (size_t i = 0; i < symbols->count; i++) {
		all_flags |= symbols->list[i].flags;
		if (kept && symbols->list[kept - 1].address == symbols->list[i].address)
			symbols->list[kept - 1].flags |= symbols->list[i].flags;
		else
			symbols->list[kept++] = symbols->list[i];
	}
	symbols->count = kept;
	for (size_t i = 0; i < NEEDED; i++)
		if (!(all_flags & functions[i].flag)) {
			*missing = functions[i].name;
			return -ENOENT;
		}
	return 0;
}

const struct symbol *symbols__find(const struct symbols *symbols, uint64_t address)
{
	size_t low = 0, high = symbols->count;

	while (low < high) {
		size_t middle = low + (high - low) / 2;

		if (symbols->list[middle].address <= address)
			low = middle + 1;
		else
			high = middle;
	}
	return low ? &symbols->list[low - 1] : NULL;
}

void symbols__close(struct symbols *symbols)
{
	free(symbols->list);
	*symbols = (struct symbols){ 0 };
}
