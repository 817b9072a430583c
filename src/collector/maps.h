/* SPDX-License-Identifier: GPL-2.0 */
/* maps.h - what the collector does to BPF maps as a whole. */
#ifndef COLLECTOR_MAPS_H
#define COLLECTOR_MAPS_H

struct bpf_map;

/* Deletes all elements of a hash map; 0 or -errno. */
int maps__clear(const struct bpf_map *map);
/* Sets all elements of an array that can be mapped to zero; 0 or -errno. */
int maps__wipe(const struct bpf_map *map);
/* Sets all elements of an array with a value for each CPU to zero; 0 or -errno. */
int maps__zero(const struct bpf_map *map);

#endif
