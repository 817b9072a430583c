/* SPDX-License-Identifier: GPL-2.0 */
#ifndef TRAFFIC_PREFLIGHT_H
#define TRAFFIC_PREFLIGHT_H

#include "failure.h"
#include "options.h"

/*
 * Try on this machine what the run will need, before anybody connects: congestion control, memory,
 * descriptors, and the strategy itself on a socket that is not connected. 0 or -errno.
 */
int preflight__check(const struct options *options, struct failure *failure);

#endif
