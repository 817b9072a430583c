// SPDX-License-Identifier: GPL-2.0
#include "aim.h"

#include <bpf/libbpf.h>
#include <copyscope.skel.h>
#include <sampling.skel.h>

/* Both objects have the globals of target.bpf.c. */
void aim__at(struct copyscope *probes, struct sampling *sampling, enum side side, pid_t tgid)
{
	probes->bss->target_tgid[side] = tgid;
	sampling->bss->target_tgid[side] = tgid;
}

void aim__at_netns(struct copyscope *probes, enum side side, __u32 inode)
{
	probes->bss->traffic_netns[side] = inode;
}
