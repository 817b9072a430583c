// SPDX-License-Identifier: GPL-2.0-only
#include "maps.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

/* Lookup and deletion in one call would need 5.14 for hash maps (commit 3e87f192b405). */
int maps__clear(const struct bpf_map *map)
{
	int fd = bpf_map__fd(map);
	/* Keys have four or eight bytes. */
	__u64 key;
	int err;

	/* If the hooks cannot be loaded (no BTF), there is no map. */
	if (fd < 0)
		return 0;
	while (!(err = bpf_map_get_next_key(fd, NULL, &key))) {
		err = bpf_map_delete_elem(fd, &key);
		/* A program that was still running when it was detached may have deleted the element first. */
		if (err && err != -ENOENT)
			return err;
	}
	return err == -ENOENT ? 0 : err;
}

/* The kernel rounds the size of values up to eight bytes. */
static size_t value_bytes(const struct bpf_map *map)
{
	return (bpf_map__value_size(map) + 7) / 8 * 8;
}

int maps__wipe(const struct bpf_map *map)
{
	size_t size = value_bytes(map) * bpf_map__max_entries(map);
	void *values = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED, bpf_map__fd(map), 0);

	if (values == MAP_FAILED)
		return -errno;
	memset(values, 0, size);
	munmap(values, size);
	return 0;
}

int maps__zero(const struct bpf_map *map)
{
	void *zeroes = calloc(libbpf_num_possible_cpus(), value_bytes(map));
	int err = zeroes ? 0 : -ENOMEM;

	for (__u32 index = 0; !err && index < bpf_map__max_entries(map); index++)
		if (bpf_map_update_elem(bpf_map__fd(map), &index, zeroes, BPF_ANY))
			err = -errno;
	free(zeroes);
	return err;
}

static unsigned int unread;
static int first_err;

void maps__note_unread(int err)
{
	if (!unread++)
		first_err = err;
}

bool maps__cells(int fd, unsigned int index, void *cells)
{
	if (fd < 0)
		return false;
	if (cells && !bpf_map_lookup_elem(fd, &index, cells))
		return true;
	maps__note_unread(cells ? -errno : -ENOMEM);
	return false;
}

bool maps__sum_and_largest(const struct bpf_map *map, unsigned int index, void *sum, size_t size, __u64 *largest)
{
	int cpus = libbpf_num_possible_cpus();
	__u64 *cells = calloc(cpus, size);
	size_t fields = size / sizeof(*cells);
	bool is_read = maps__cells(bpf_map__fd(map), index, cells);

	for (size_t i = 0; is_read && i < cpus * fields; i++) {
		__u64 *into = (__u64 *)sum + i % fields;

		if (into != largest)
			*into += cells[i];
		else if (cells[i] > *into)
			*into = cells[i];
	}
	free(cells);
	return is_read;
}

bool maps__sum(const struct bpf_map *map, unsigned int index, void *sum, size_t size)
{
	return maps__sum_and_largest(map, index, sum, size, NULL);
}

#define ELEMENTS_AT_ONCE 4096

void maps__each(int fd, size_t key_size, size_t value_size,
		void (*each)(void *context, const void *key, const void *value), void *context)
{
	char *keys = calloc(ELEMENTS_AT_ONCE, key_size), *values = calloc(ELEMENTS_AT_ONCE, value_size);
	int err = keys && values ? 0 : -ENOMEM;
	__u32 position, *previous = NULL;

	while (fd >= 0 && !err) {
		__u32 count = ELEMENTS_AT_ONCE;

		err = bpf_map_lookup_batch(fd, previous, &position, keys, values, &count, NULL);
		if (err && err != -ENOENT)
			break;
		previous = &position;
		for (__u32 i = 0; i < count; i++)
			each(context, keys + i * key_size, values + i * value_size);
	}
	if (err && err != -ENOENT)
		maps__note_unread(err);
	free(keys);
	free(values);
}

unsigned int maps__unread(int *err)
{
	*err = first_err;
	return unread;
}
