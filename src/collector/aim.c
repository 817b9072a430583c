// SPDX-License-Identifier: GPL-2.0
#include "aim.h"

#include <stdio.h>
#include <sys/stat.h>

#include <bpf/libbpf.h>
#include <copyscope.skel.h>
#include <sampling.skel.h>

/* 0 where it is the one that we are in: others are in it, too. */
static __u32 netns_of_its_own(pid_t pid)
{
	struct stat its, ours;
	char path[32];

	snprintf(path, sizeof(path), "/proc/%d/ns/net", pid);
	if (stat(path, &its) || stat("/proc/self/ns/net", &ours) || its.st_ino == ours.st_ino)
		return 0;
	return its.st_ino;
}

/* Both objects have the globals of target.bpf.c. */
void aim__at(struct copyscope *probes, struct sampling *sampling, enum side side, pid_t tgid)
{
	probes->bss->target_tgid[side] = tgid;
	probes->bss->traffic_netns[side] = netns_of_its_own(tgid);
	sampling->bss->target_tgid[side] = tgid;
}
