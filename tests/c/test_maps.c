// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <unistd.h>

#include "../../src/collector/report/maps.h"
#include "check.h"

static void must_not_be_called(void *context, const void *key, const void *value)
{
	(void)context;
	(void)key;
	(void)value;
	CHECK(false);
}

TEST("maps: what cannot be read is counted and not zero")
{
	unsigned long long cells[256];
	int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
	int err = 0;

	/* Without a map (nothing was loaded) reading is no error. */
	CHECK(!maps__cells(-1, 0, cells));
	CHECK_EQUAL(maps__unread(&err), 0);
	/* If the kernel refuses to read an existing map, this is counted as an error. */
	CHECK(fd >= 0);
	CHECK(!maps__cells(fd, 0, cells));
	CHECK_EQUAL(maps__unread(&err), 1);
	CHECK(err < 0);
	CHECK(!maps__cells(fd, 1, NULL));
	CHECK_EQUAL(maps__unread(&err), 2);
	maps__each(-1, 8, 8, must_not_be_called, NULL);
	CHECK_EQUAL(maps__unread(&err), 2);
	maps__each(fd, 8, 8, must_not_be_called, NULL);
	CHECK_EQUAL(maps__unread(&err), 3);
	close(fd);
}
