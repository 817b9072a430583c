// SPDX-License-Identifier: GPL-2.0-only
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* qsort_r() */
#endif
#include "ksyms.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <bpf/bpf.h>

/* Upper bound of the length of a kernel function. An address further after a symbol belongs to no known function. */
#define FUNCTION_MAX (1UL << 20)

/*
 * If names have the same address, the first in this order is used. Symbols that mark the start or end of a text
 * section (RANK_BOUND) are no functions and come last.
 */
enum rank { RANK_GLOBAL, RANK_WEAK, RANK_LOCAL, RANK_BOUND };

struct ksym {
	uint64_t address;
	uint32_t name;
	/* 0: unknown, ends at the next symbol. */
	uint32_t length;
	enum rank rank;
};

struct ksyms {
	struct ksym *table;
	uint32_t count;
	uint32_t capacity;
	char *names;
	size_t names_size;
	size_t names_capacity;
};

static int add_symbol(struct ksyms *ksyms, uint64_t address, enum rank rank, const char *name)
{
	size_t length = strlen(name) + 1;

	if (ksyms->count == ksyms->capacity) {
		uint32_t capacity = ksyms->capacity ? 2 * ksyms->capacity : 1 << 16;
		void *table = realloc(ksyms->table, capacity * sizeof(*ksyms->table));

		if (!table)
			return -ENOMEM;
		ksyms->table = table;
		ksyms->capacity = capacity;
	}
	if (ksyms->names_size + length > ksyms->names_capacity) {
		size_t capacity = ksyms->names_capacity ? 2 * ksyms->names_capacity : 1 << 21;
		void *names = realloc(ksyms->names, capacity);

		if (!names)
			return -ENOMEM;
		ksyms->names = names;
		ksyms->names_capacity = capacity;
	}
	memcpy(ksyms->names + ksyms->names_size, name, length);
	ksyms->table[ksyms->count++] = (struct ksym){ .address = address, .name = ksyms->names_size, .rank = rank };
	ksyms->names_size += length;
	return 0;
}

/*
 * Compare two symbols. The order is complete, because qsort() leaves the order of equal elements undefined. Entries
 * with equal names and addresses are interchangeable.
 */
static int by_address(const void *a, const void *b, void *names)
{
	const struct ksym *x = a, *y = b;

	if (x->address != y->address)
		return x->address < y->address ? -1 : 1;
	if (x->rank != y->rank)
		return x->rank < y->rank ? -1 : 1;
	return strcmp((const char *)names + x->name, (const char *)names + y->name);
}

static bool ends_with(const char *name, const char *end)
{
	size_t length = strlen(name), tail = strlen(end);

	return length >= tail && !strcmp(name + length - tail, end);
}

static enum rank rank_of(char type, const char *name)
{
	if (ends_with(name, "text_start") || ends_with(name, "text_end") || ends_with(name, "_text") || ends_with(name, "_stext"))
		return RANK_BOUND;
	return type == 'T' ? RANK_GLOBAL : type == 't' ? RANK_LOCAL : RANK_WEAK;
}

/* Parse a line such as `ffffffff81000000 T _text` or `ffffffffc0001000 t veth_xmit [veth]`. */
static int parse_line(struct ksyms *ksyms, char *line)
{
	char *end, *name;
	uint64_t address = strtoull(line, &end, 16);

	if (end == line || end[0] != ' ' || !end[1] || end[2] != ' ')
		return 0;
	if (!strchr("tTwW", end[1]) || !address)
		return 0;
	name = end + 3;
	name[strcspn(name, " \t\n")] = '\0';
	return add_symbol(ksyms, address, rank_of(end[1], name), name);
}

int ksyms__load(struct ksyms **result)
{
	return ksyms__read(result, "/proc/kallsyms");
}

int ksyms__read(struct ksyms **result, const char *path)
{
	struct ksyms *ksyms = calloc(1, sizeof(*ksyms));
	char *line = NULL;
	size_t size = 0;
	FILE *file;
	int err;

	if (!ksyms)
		return -ENOMEM;
	file = fopen(path, "re");
	if (!file) {
		err = -errno;
		goto cleanup;
	}
	err = add_symbol(ksyms, 0, RANK_GLOBAL, "[unknown]");
	while (!err && getline(&line, &size, file) >= 0)
		err = parse_line(ksyms, line);
	if (!err && ferror(file))
		err = -EIO;
	if (!err && ksyms->count == 1)
		err = -EPERM;
	if (err)
		goto cleanup;
	qsort_r(ksyms->table, ksyms->count, sizeof(*ksyms->table), by_address, ksyms->names);
	*result = ksyms;
	ksyms = NULL;
cleanup:
	free(line);
	if (file)
		fclose(file);
	ksyms__free(ksyms);
	return err;
}

uint32_t ksyms__count(const struct ksyms *ksyms)
{
	return ksyms->count - 1;
}

/* Return the last symbol at or below the address, or 0 if the address is below all symbols. */
static uint32_t last_below(const struct ksyms *ksyms, uint64_t address)
{
	uint32_t low = 0, high = ksyms->count;

	while (high - low > 1) {
		uint32_t middle = low + (high - low) / 2;

		if (ksyms->table[middle].address <= address)
			low = middle;
		else
			high = middle;
	}
	return low;
}

uint32_t ksyms__find(const struct ksyms *ksyms, uint64_t address)
{
	uint32_t id = last_below(ksyms, address);
	const struct ksym *symbol = &ksyms->table[id];

	if (!id || address - symbol->address > FUNCTION_MAX)
		return KSYM_UNKNOWN;
	if (symbol->length && address - symbol->address >= symbol->length)
		return KSYM_UNKNOWN;
	/* Aliases have the same address: use the first (by_address()). */
	while (id > 1 && ksyms->table[id - 1].address == ksyms->table[id].address)
		id--;
	return id;
}

void ksyms__bound(struct ksyms *ksyms, uint64_t address, uint32_t length)
{
	uint32_t id = last_below(ksyms, address);

	if (id && ksyms->table[id].address == address)
		ksyms->table[id].length = length;
}

const char *ksyms__name(const struct ksyms *ksyms, uint32_t id)
{
	return ksyms->names + ksyms->table[id].name;
}

static bool is_clone(const char *suffix)
{
	return !strncmp(suffix, ".isra.", 6) || !strncmp(suffix, ".constprop.", 11);
}

/* Return the id of the symbol with this name, or of a clone; KSYM_UNKNOWN if there is neither. */
static uint32_t find_name(const struct ksyms *ksyms, const char *name)
{
	size_t length = strlen(name);
	uint32_t clone = KSYM_UNKNOWN;

	for (uint32_t id = 1; id < ksyms->count; id++) {
		const char *symbol_name = ksyms__name(ksyms, id);

		if (strncmp(symbol_name, name, length))
			continue;
		if (!symbol_name[length])
			return id;
		if (is_clone(symbol_name + length) && !strstr(symbol_name + length, ".part.") && !strstr(symbol_name + length, ".cold"))
			clone = clone ?: id;
	}
	return clone;
}

const char *ksyms__find_name(const struct ksyms *ksyms, const char *name)
{
	uint32_t id = find_name(ksyms, name);

	return id ? ksyms__name(ksyms, id) : NULL;
}

const char *ksyms__range(const struct ksyms *ksyms, const char *name, uint64_t *address, uint64_t *end)
{
	uint32_t id = find_name(ksyms, name), next = id;

	/* Skip aliases, which have the same address. */
	while (id && next < ksyms->count && ksyms->table[next].address == ksyms->table[id].address)
		next++;
	if (!id || next == ksyms->count)
		return NULL;
	*address = ksyms->table[id].address;
	*end = ksyms->table[next].address;
	return ksyms__name(ksyms, id);
}

void ksyms__free(struct ksyms *ksyms)
{
	if (!ksyms)
		return;
	free(ksyms->names);
	free(ksyms->table);
	free(ksyms);
}

/* Maximum number of functions in a program; ours have at most five. */
#define FUNCTIONS_MAX 256

static int bound_program(struct ksyms *ksyms, int fd)
{
	__u64 addresses[FUNCTIONS_MAX] = {};
	__u32 lengths[FUNCTIONS_MAX] = {};
	struct bpf_prog_info info = {
		.jited_ksyms = (uintptr_t)addresses,
		.nr_jited_ksyms = FUNCTIONS_MAX,
		.jited_func_lens = (uintptr_t)lengths,
		.nr_jited_func_lens = FUNCTIONS_MAX,
	};
	__u32 size = sizeof(info);

	if (bpf_obj_get_info_by_fd(fd, &info, &size))
		return -errno;
	/* The kernel returns the total number, even if it exceeds the space for the results. */
	for (__u32 i = 0; i < info.nr_jited_ksyms && i < info.nr_jited_func_lens && i < FUNCTIONS_MAX; i++)
		ksyms__bound(ksyms, addresses[i], lengths[i]);
	return 0;
}

int ksyms__bound_programs(struct ksyms *ksyms)
{
	__u32 id = 0;

	while (!bpf_prog_get_next_id(id, &id)) {
		int fd = bpf_prog_get_fd_by_id(id);
		int err = fd < 0 ? -errno : bound_program(ksyms, fd);

		if (fd >= 0)
			close(fd);
		/* ENOENT: the program was unloaded meanwhile. */
		if (err && err != -ENOENT)
			return err;
	}
	return errno == ENOENT ? 0 : -errno;
}
