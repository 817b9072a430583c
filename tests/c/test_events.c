// SPDX-License-Identifier: GPL-2.0-only
/* Tests of sets of perf events (events.h). */
#include <fcntl.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "../../src/collector/sampling/events.h"
#include "check.h"

#define MANY 200

TEST("events: all are switched")
{
	struct events events = {};
	int fds[MANY];

	for (int i = 0; i < MANY; i++) {
		struct event *event = calloc(1, sizeof(*event));

		fds[i] = open("/dev/null", O_RDONLY);
		CHECK(fds[i] >= 0 && event);
		*event = (struct event){ .fd = fds[i], .next = events.first };
		events.first = event;
	}
	/* Use FIOCLEX, an ioctl that every file accepts. */
	CHECK_EQUAL(events__switch(&events, FIOCLEX), 0);
	for (int i = 0; i < MANY; i++) {
		CHECK_EQUAL(fcntl(fds[i], F_GETFD), FD_CLOEXEC);
		close(fds[i]);
	}
	events__close(&events);
	CHECK(!events.first);
}
