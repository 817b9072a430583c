/* SPDX-License-Identifier: GPL-2.0-only */
/* map.bpf.h - defines a map that has only a type, a key, a value and a size. */
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
