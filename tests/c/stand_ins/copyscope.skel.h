/* SPDX-License-Identifier: GPL-2.0-only */
/* copyscope.skel.h - replaces the skeleton of the BPF programs in unit tests, which need neither clang nor BTF. */
#ifndef TESTS_COPYSCOPE_SKEL_H
#define TESTS_COPYSCOPE_SKEL_H

#include <linux/types.h>

struct copyscope {
	struct copyscope__bss {
		__u32 splices_seen;
		__u32 splices_counted;
	} *bss;
};

#endif
