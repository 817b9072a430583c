/* SPDX-License-Identifier: GPL-2.0 */
/* map.bpf.h - a map that needs nothing but its kind, its key, its value and how many there are. */
#ifndef COPYSCOPE_MAP_BPF_H
#define COPYSCOPE_MAP_BPF_H

#define MAP(kind, name, key_type, value_type, entries) \
	struct { \
		__uint(type, BPF_MAP_TYPE_##kind); \
		__uint(max_entries, entries); \
		__type(key, key_type); \
		__type(value, value_type); \
	} name SEC(".maps")

#endif
