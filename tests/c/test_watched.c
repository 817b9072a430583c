// SPDX-License-Identifier: GPL-2.0-only
/* Tests of watched.h: the processes of a watched program are read again only after a change. */
#include "../../src/collector/report/watched.h"
#include "check.h"

static struct watched watched;

TEST("watched: the map is read when either object has changed it")
{
	volatile __u32 changes[2] = { 7, 0 };

	/* Without a map, no process is found. */
	watched.map = (struct watched_map){ .fd = -1, .changes = { &changes[0], &changes[1] } };
	CHECK(watched__update(&watched));
	CHECK(!watched__update(&watched));
	changes[1]++;
	CHECK(watched__update(&watched));
	CHECK(!watched__update(&watched));
	changes[0]++;
	CHECK(watched__update(&watched));
	CHECK_EQUAL(watched.count, 0);
}
