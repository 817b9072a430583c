/* SPDX-License-Identifier: GPL-2.0 */
/* maps.h - what the collector does to BPF maps as a whole. */
#ifndef COLLECTOR_MAPS_H
#define COLLECTOR_MAPS_H

#include <stdbool.h>
#include <stddef.h>

#include <linux/types.h>

struct bpf_map;

/* Deletes all elements of a hash map; 0 or -errno. */
int maps__clear(const struct bpf_map *map);
/* Sets all elements of an array that can be mapped to zero; 0 or -errno. */
int maps__wipe(const struct bpf_map *map);
/* Sets all elements of an array with a value for each CPU to zero; 0 or -errno. */
int maps__zero(const struct bpf_map *map);
/*
 * The values of all CPUs at an index. False when there is no map (fd below 0: nothing was loaded); and when they cannot be read or there
 * is no room for them (`cells` NULL): what looks like zero then is unknown, and that is counted, as a loss of the run.
 */
bool maps__cells(int fd, unsigned int index, void *cells);
/* The sum over all CPUs of a value whose `size` bytes are 64-bit counts; false, and nothing added, as above. */
bool maps__sum(const struct bpf_map *map, unsigned int index, void *sum, size_t size);
/* The same, but one of the counts in the sum, `largest`, becomes the largest of any CPU. */
bool maps__sum_and_largest(const struct bpf_map *map, unsigned int index, void *sum, size_t size, __u64 *largest);
/*
 * Each element of a hash map, in chunks of buckets: elements come and go meanwhile, and one key after the other might begin anew
 * without end. What cannot be read is counted as above.
 */
void maps__each(int fd, size_t key_size, size_t value_size,
		void (*each)(void *context, const void *key, const void *value), void *context);
/* Notes that something could not be read, with its -errno: what is reported is less than what happened. */
void maps__note_unread(int err);
/* How often that was so, and the -errno of the first time. */
unsigned int maps__unread(int *err);

#endif
