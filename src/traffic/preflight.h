/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef TRAFFIC_PREFLIGHT_H
#define TRAFFIC_PREFLIGHT_H

#include "failure.h"
#include "options.h"

/*
 * Before any connection is made, check that this machine can do the run: file descriptors, memory, socket options including
 * congestion control, and the strategy or reading, which is tried on an unconnected socket. Return 0 or -errno with the
 * reason in `failure`.
 */
int preflight__check(const struct options *options, struct failure *failure);

#endif
