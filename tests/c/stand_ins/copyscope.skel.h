/* copyscope.skel.h - what the unit programs have instead of the skeleton that is made from the BPF programs: no kernel, no BTF. */
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
