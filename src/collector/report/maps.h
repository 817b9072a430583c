/* SPDX-License-Identifier: GPL-2.0-only */
/* maps.h - operations on whole BPF maps. */
#ifndef COLLECTOR_MAPS_H
#define COLLECTOR_MAPS_H

#include <stdbool.h>
#include <stddef.h>

#include <linux/types.h>

struct bpf_map;

/* Delete all elements of a hash map. Return 0 or -errno. */
int maps__clear(const struct bpf_map *map);
/* Zero all elements of a memory-mappable array. Return 0 or -errno. */
int maps__wipe(const struct bpf_map *map);
/* Zero all elements of a per-CPU array. Return 0 or -errno. */
int maps__zero(const struct bpf_map *map);
/*
 * Read the values of all CPUs at an index. Return false if there is no map (fd below 0, because nothing was loaded).
 * Also return false if the values cannot be read or there is no memory for them (`cells` NULL). They are then
 * unknown, not zero, and this is counted as a loss of the run.
 */
bool maps__cells(int fd, unsigned int index, void *cells);
/*
 * Add the values of all CPUs, which consist of 64-bit counts, to `sum` (`size` bytes). On failure return false and
 * add nothing, as above.
 */
bool maps__sum(const struct bpf_map *map, unsigned int index, void *sum, size_t size);
/* Like maps__sum(), but `largest`, a count inside `sum`, becomes the maximum of all CPUs. */
bool maps__sum_and_largest(const struct bpf_map *map, unsigned int index, void *sum, size_t size, __u64 *largest);
/*
 * Call `each` for every element of a hash map, read in chunks of buckets. Walking key by key could restart without
 * end, because elements come and go meanwhile. Read errors are counted as above.
 */
void maps__each(int fd, size_t key_size, size_t value_size,
		void (*each)(void *context, const void *key, const void *value), void *context);
/* Record that something could not be read, with its -errno, so that the report is known to be incomplete. */
void maps__note_unread(int err);
/* Return the number of failed reads, and store the -errno of the first failed read. */
unsigned int maps__unread(int *err);

#endif
