/* SPDX-License-Identifier: GPL-2.0 */
/* aim.h - whose work is measured, in a run of our own traffic. */
#ifndef COLLECTOR_AIM_H
#define COLLECTOR_AIM_H

#include <sys/types.h>

#include "abi.h"

struct copyscope;
struct sampling;

/* The process of a side. */
void aim__at(struct copyscope *probes, struct sampling *sampling, enum side side, pid_t tgid);
/* Its network namespace, which nobody else is in: all packets in it are its work. */
void aim__at_netns(struct copyscope *probes, enum side side, __u32 inode);

#endif
